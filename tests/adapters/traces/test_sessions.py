"""Recorded sessions in proctor's own and other formats, with any contents."""

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.adapters.evaluate.judge import ViolationRecord, by_call, call_lines, judge_session
from proctor.adapters.traces import FORMATS, TraceError, TraceSession, read_sessions
from proctor.policies import compile_policy, parse_policies
from proctor.policies import events as ev

CALL = {"type": "tool_call", "id": "c0", "name": "read", "arguments": {"path": "a"}, "turn": 1}
RESULT = {"type": "tool_result", "id": "c0", "content": "text", "is_error": False, "turn": 1}


def test_every_kind_of_item_becomes_an_event(read_one: Callable[..., TraceSession]) -> None:
    """In the order of the log, numbered from 1, with its turn; a start is added for each response."""
    session = read_one(
        {
            "id": "s",
            "model": "m-1",
            "outcome": {"reward": 1.0},
            "events": [
                {"type": "message", "role": "user", "text": "read it", "turn": 0},
                {"type": "message", "role": "assistant", "text": "I will", "turn": 1},
                {
                    "type": "usage",
                    "input_tokens": 9,
                    "output_tokens": 2,
                    "cached_input_tokens": 4,
                    "cost": 0.5,
                    "turn": 1,
                },
                CALL,
                RESULT,
            ],
        }
    )

    stamps: dict[str, Any] = {"session_id": "s"}
    assert session.events == [
        ev.MessageSent(seq=1, role="user", content="read it", **stamps),
        ev.TurnStarted(seq=2, turn=1, **stamps),
        ev.MessageReceived(seq=3, role="assistant", content="I will", **stamps),
        ev.TokenUsageUpdated(
            seq=4, input_tokens=9, output_tokens=2, cache_read_tokens=4, cost_usd=0.5, model="m-1", **stamps
        ),
        ev.ToolCallStarted(seq=5, tool_call_id="c0", tool_name="read", tool_input={"path": "a"}, turn=1, **stamps),
        ev.ToolCallCompleted(seq=6, tool_call_id="c0", tool_name="read", tool_output="text", **stamps),
    ]
    assert session.metadata == {"model": "m-1", "outcome": {"reward": 1.0}}
    assert session.complete


def kinds(session: TraceSession) -> list[type]:
    """The types of a session's events about calls."""
    return [type(event) for event in session.events if not isinstance(event, ev.TurnStarted)]


def test_an_output_cut_within_a_character_is_read(write: Callable[..., str]) -> None:
    """As JavaScript programs cut text, even in the line that identifies the format."""
    (session,) = read_sessions([write({"id": "s", "events": [CALL, {**RESULT, "content": "cut \ud83d"}]})])

    assert [each.tool_output for each in session.events if isinstance(each, ev.ToolCallCompleted)] == ["cut \ufffd"]


def test_a_call_without_a_result_among_others_was_requested_and_never_ran(read_one: Any) -> None:
    """The log ends where the agent was stopped. In logs that have only calls, each is read as completed."""
    session = read_one({"id": "s", "events": [CALL, RESULT, {**CALL, "id": "c1"}]})
    without = read_one({"id": "s", "events": [CALL, {**CALL, "id": "c1"}]})

    assert kinds(session) == [ev.ToolCallStarted, ev.ToolCallCompleted, ev.ToolCallRequested]
    assert session.never_ran == {"c1"}
    assert kinds(without) == [ev.ToolCallStarted, ev.ToolCallCompleted] * 2


def test_a_call_whose_id_an_earlier_one_had_needs_a_result_of_its_own(read_one: Any) -> None:
    """The first ran, the second did not, so the third is the second that counts."""
    other, last = {**CALL, "turn": 2}, {**CALL, "id": "c9", "turn": 3}
    session = read_one({"id": "s", "events": [CALL, RESULT, other, last, {**RESULT, "id": "c9", "turn": 3}]})
    rule = {"type": "count", "tool": "read", "max": 2}
    report = judge_session(compile_policy(*parse_policies({"name": "p", "rules": [rule]})), session)

    started = [ev.ToolCallStarted, ev.ToolCallCompleted]
    assert kinds(session) == [*started, ev.ToolCallRequested, *started]
    assert report.violations == []


@pytest.mark.parametrize("later", [{"turn": 3, "arguments": {"path": "b"}}, {"turn": 2, "name": "write"}])
def test_a_call_without_a_result_never_ran_also_if_a_later_one_has_its_id(read_one: Any, later: Any) -> None:
    """In a later turn, or of another tool, it is another call."""
    other, last = {**CALL, "turn": 2}, {**CALL, **later}
    session = read_one({"id": "s", "events": [CALL, RESULT, other, last, {**RESULT, "turn": last["turn"]}]})
    lines = call_lines(session.events)

    def violations(rule: dict[str, Any]) -> list[ViolationRecord]:
        compiled = compile_policy(*parse_policies({"name": "p", "rules": [rule]}))
        return judge_session(compiled, session).violations

    assert violations({"type": "count", "tool": ["read", "write"], "max": 2}) == []
    assert sorted(by_call(violations({"type": "blocklist", "tools": ["*"]}), lines)) == [1, 2, 3]
    assert [(line.name, line.fate) for line in lines] == [("read", ""), ("read", "never ran"), (last["name"], "")]


def test_items_of_unknown_types_are_kept(read_one: Callable[..., TraceSession]) -> None:
    """They do not hide the known ones."""
    item = {"type": "thought", "text": "hm"}

    session = read_one({"id": "s", "events": [item, CALL, RESULT]})

    assert session.events[0] == ev.Unrecognized(session_id="s", seq=1, raw=item)
    assert kinds(session)[1:] == [ev.ToolCallStarted, ev.ToolCallCompleted]


def test_arguments_as_json_text_are_read_as_an_object(read_one: Callable[..., TraceSession]) -> None:
    """As model APIs return them. Text that is no object becomes `input`."""

    def argument(value: Any) -> Any:
        session = read_one({"id": "s", "events": [{**CALL, "arguments": value}]})
        return next(event.tool_input for event in session.events if isinstance(event, ev.ToolCallStarted))

    assert argument('{"path": "a"}') == {"path": "a"}
    assert argument("ls -l") == {"input": "ls -l"}
    assert argument(None) == {}


def test_amounts_are_read_under_the_names_of_events(read_one: Callable[..., TraceSession]) -> None:
    """A total beside its parts, and an invalid amount, change nothing."""
    amounts: dict[str, Any] = {"input_tokens": 9, "output_tokens": 2, "cache_read_tokens": 4, "cost_usd": 0.5}
    [used] = read_one({"id": "s", "events": [{"type": "usage", **amounts, "total_tokens": 11, "by": "x"}]}).events

    assert used == ev.TokenUsageUpdated(seq=1, session_id="s", **amounts)


@pytest.mark.parametrize(("result", "kind", "error"), [
    ({"content": "no such file", "is_error": True}, ev.ToolCallFailed, "no such file"),
    ({"error": "no such file"}, ev.ToolCallFailed, "no such file"),
    ({"output": "text", "error": None}, ev.ToolCallCompleted, None),
    ({"output": "text", "error": ""}, ev.ToolCallCompleted, None),
])  # fmt: skip
def test_a_result_with_an_error_is_a_failed_call(
    read_one: Callable[..., TraceSession], result: dict[str, Any], kind: type[ev.Event], error: str | None
) -> None:
    """A result marked as an error has its content as the error. An empty error is a completed call."""
    end = read_one({"id": "s", "events": [CALL, {"type": "tool_result", "id": "c0", **result}]}).events[-1]

    assert (type(end), getattr(end, "tool_name", None), getattr(end, "error", None)) == (kind, "read", error)


def test_a_call_may_have_input_and_output_keys(read_one: Callable[..., TraceSession]) -> None:
    """Other formats do, and no call that a rule would evaluate is ignored."""
    call = {"type": "tool_call", "id": "c0", "name": "bash", "input": {"command": "rm x"}}
    session = read_one({"id": "s", "events": [call, {"type": "tool_result", "id": "c0", "output": "done"}]})

    assert session.events == [
        ev.ToolCallStarted(
            seq=1, session_id="s", tool_call_id="c0", tool_name="bash", tool_input={"command": "rm x"}
        ),
        ev.ToolCallCompleted(seq=2, session_id="s", tool_call_id="c0", tool_name="bash", tool_output="done"),
    ]


SPAN = {"traceId": "t", "spanId": "a", "name": "chat x", "attributes": {"gen_ai.operation.name": "chat"}}
SAMPLES: dict[str, list[Any]] = {
    "events": [{"type": "run_started", "run_id": "r", "session_id": "s", "seq": 1}],
    "sessions": [{"id": "s", "events": []}],
    "claude": [
        {"type": "file-history-snapshot", "snapshot": {}},
        {"type": "user", "sessionId": "s", "uuid": "u", "message": {"role": "user", "content": "hi"}},
    ],
    "codex": [{"timestamp": "2026-01-01T00:00:00Z", "type": "session_meta", "payload": {"id": "s"}}],
    "otel": [SPAN],
}


@pytest.mark.parametrize("name", FORMATS)
def test_each_format_is_recognised_by_its_first_lines(name: str, write: Callable[..., str]) -> None:
    """Without `--format`, also if other lines come first."""
    (session,) = read_sessions([write(*SAMPLES[name])])

    assert session.format == name


@pytest.mark.parametrize(
    ("given", "detected"), [("claude", "events"), ("claude", "codex"), ("codex", "claude"), ("events", "claude")]
)
def test_a_format_for_a_file_of_another_is_an_error(given: str, detected: str, write: Any) -> None:
    """A log's reader skips unknown lines, so it would find an empty session."""
    with pytest.raises(TraceError, match=f"in the format `{detected}`, not `{given}`"):
        list(read_sessions([write(*SAMPLES[detected])], format=given))


@pytest.mark.parametrize("content", [b'{"hello": 1}', b'{"type": []}', b"[1]", b'"text"'])
def test_an_unrecognised_file_asks_for_the_format(content: bytes, write: Callable[..., str]) -> None:
    """The message says what to type."""
    with pytest.raises(TraceError, match=r"--format events\|sessions\|claude\|codex\|otel"):
        list(read_sessions([write(content)]))


STARTED = {"type": "tool_call_started", "tool_call_id": "c", "tool_name": "read"}


def event(session: str, seq: int, **fields: Any) -> dict[str, Any]:
    """One event of a run."""
    return {"session_id": session, "run_id": f"run-{session}", "seq": seq, **fields}


def test_interleaved_sessions_are_separated(write: Callable[..., str]) -> None:
    """Each with its own events, in the order of their first ones."""
    path = write(
        event("b", 1, type="run_started", model="m"), event("a", 1, type="run_started"), event("b", 2, **STARTED)
    )

    found = list(read_sessions([path]))

    assert [(s.id, [e.type for e in s.events]) for s in found] == [
        ("b", ["run_started", "tool_call_started"]),
        ("a", ["run_started"]),
    ]
    assert found[0].metadata == {"model": "m"}


@pytest.mark.parametrize(("events", "complete"), [
    ([event("s", 1, type="run_started")], False),
    ([event("s", 1, type="run_started"), event("s", 2, type="run_completed")], True),
    ([event("s", 1, type="run_failed"), {"type": "session_paused", "session_id": "s", "seq": 2}], True),
    ([event("s", 1, type="run_completed"), event("s", 2, type="run_started")], False),
])  # fmt: skip
def test_a_session_is_complete_once_its_last_run_has_ended(
    read_one: Callable[..., TraceSession], events: list[dict[str, Any]], complete: bool
) -> None:
    """A resumed session is open again; bookkeeping after the end does not reopen it."""
    assert read_one(*events).complete is complete


def test_events_of_a_later_version_and_without_ids_are_read(read_one: Callable[..., TraceSession]) -> None:
    """Unknown types are no errors. A trace written by hand needs neither a session nor numbers."""
    later = read_one(event("s", 1, type="run_started"), event("s", 2, type="thought_shared", text="hm"))
    bare = read_one({**STARTED, "tool_call_id": "c1"}, {**STARTED, "tool_call_id": "c2"}, format="events")

    assert later.events[1].type == "thought_shared"
    assert [e.seq for e in bare.events] == [1, 2]
    assert bare.id.endswith("trace.jsonl")


def test_an_invalid_event_is_an_error_with_its_line(write: Callable[..., str]) -> None:
    """And the reason."""
    path = write(event("s", 1, type="run_started"), event("s", 2, type="tool_call_started", tool_name=7))

    with pytest.raises(TraceError, match=r"trace\.jsonl:2: `tool_call_started` event: "):
        list(read_sessions([path]))


def test_a_denied_call_never_ran_and_a_requested_one_may_still(read_one: Any) -> None:
    """A person may have been asked."""
    ask = {**STARTED, "type": "tool_call_requested"}
    deny = {"type": "tool_call_denied", "tool_call_id": "c2"}

    session = read_one(event("s", 1, **ask), event("s", 2, **{**ask, "tool_call_id": "c2"}), event("s", 3, **deny))

    assert session.never_ran == {"c2"}


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
NAMES = """
    action agentId arguments at attributes call_id context content events function gen_ai.input.messages
    gen_ai.operation.name gen_ai.tool.name id info input is_error item message name output parentSpanId parts
    payload resourceSpans role scopeSpans seq sessionId session_id spanId spans startTimeUnixNano status text
    timestamp toolUseResult tool_call_id tool_calls tool_name tool_use_id traceId turn type usage uuid
"""
TYPES = """
    assistant user message tool_call tool_result tool_use function_call function_call_output session_meta
    response_item event_msg token_count item_completed UserMessage chat execute_tool invoke_agent
"""
WORDS = st.sampled_from(TYPES.split())
KEYS = st.sampled_from(NAMES.split())
VALUES = st.recursive(
    SCALARS | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=25,
)
RECORDS = st.dictionaries(KEYS, VALUES, max_size=8)


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=40)
@given(records=st.lists(RECORDS | VALUES, min_size=1, max_size=4))
def test_traces_of_any_shape_are_read_or_rejected_with_their_position(format: str, records: list[Any]) -> None:
    """Never with another exception, as traces are untrusted input."""
    content = b"\n".join(json.dumps(record).encode() for record in records)

    read_or_rejected(content, format)


@pytest.mark.parametrize("format", [*FORMATS, None])
@settings(max_examples=40)
@given(content=st.binary(min_size=1, max_size=200))
def test_bytes_of_any_kind_are_read_or_rejected_with_their_position(format: str | None, content: bytes) -> None:
    """Including those that start like a gzip file."""
    for prefix in (b"", b"\x1f\x8b", b"\x1f\x8b\x08\x00"):
        read_or_rejected(prefix + content, format)


def read_or_rejected(content: bytes, format: str | None) -> None:
    """Read everything; a TraceError with a position is fine."""
    try:
        for session in read_sessions(["-"], format=format, stdin=io.BytesIO(content)):
            assert isinstance(session.id, str)
    except TraceError as error:
        assert error.place.startswith("<stdin>")  # noqa: PT017 - both outcomes are right
