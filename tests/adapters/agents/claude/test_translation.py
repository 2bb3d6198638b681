"""Recorded streams of the client (2.1.329) and the resulting events."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("claude_agent_sdk", reason="needs Claude Code: pip install '.[claude]'")

from proctor.adapters.agents.claude.hooks import ClaudeCalls
from proctor.adapters.agents.claude.translation import ClaudeTranslation, SessionMeter
from proctor.adapters.traces import read_sessions
from proctor.policies import events as ev

DATA = Path(__file__).parent / "data"


def recorded(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text().splitlines()]


def translated(records: list[dict[str, Any]], *gated: str) -> list[ev.Event]:
    calls = ClaudeCalls()
    for call_id in gated:
        calls.proposed(call_id, "Bash", {}, None)
        calls.allowed(call_id, {})
    translator = ClaudeTranslation(calls)
    events = [event for record in records for event in translator.events(record)]
    assert translator.done
    return [*events, *translator.ending({})]


def calls_in(records: list[dict[str, Any]]) -> list[str]:
    """The ids of the tool calls of a stream, in order."""
    blocks = [block for r in records if r["type"] == "assistant" for block in r["message"]["content"]]
    return [block["id"] for block in blocks if block["type"] == "tool_use"]


def test_a_stream_of_parallel_calls_becomes_turns_messages_and_outcomes() -> None:
    """Every record of it is recognised, and a failed call differs from a completed one. A result of JSON text stays
    text, which rules parse.
    """
    records = recorded("parallel")
    events = translated(records, *calls_in(records))

    kinds = [event.type for event in events if event.type != "message_streamed"]
    outcomes = [kind for kind in kinds if kind.startswith("tool_call")]
    assert sorted(outcomes) == ["tool_call_completed", "tool_call_completed", "tool_call_failed"]
    assert [kind for kind in kinds if not kind.startswith("tool_call")] == [
        *("session_started", "turn_started", "message_received", "turn_completed", "turn_started"),
        *("message_received", "turn_completed", "run_completed"),
    ]
    assert '{"id": 7}' in [e.tool_output for e in events if isinstance(e, ev.ToolCallCompleted)]


def test_a_subagents_text_is_neither_the_users_nor_the_assistants() -> None:
    """Its prompt and its text are no messages of the session, and its responses no turns."""
    records = recorded("sub_agent")
    events = translated(records, *calls_in(records))

    contents = [event.content for event in events if isinstance(event, ev.MessageReceived)]
    assert contents == ["it is running", "it is done"]
    assert "message_sent" not in {event.type for event in events}
    assert [event.turn for event in events if isinstance(event, ev.TurnStarted)] == [1, 2, 3]


def test_a_call_that_bypassed_the_gate_is_reported_as_started() -> None:
    """So it is evaluated anyway, a subagent's with the turn of its parent."""
    records = recorded("sub_agent")
    agent, inner = calls_in(records)
    events = translated(records, agent)

    assert [e for e in events if isinstance(e, ev.ToolCallStarted)] == [
        ev.ToolCallStarted(
            tool_call_id=inner,
            tool_name="Bash",
            tool_input={"command": "echo sub", "description": "x"},
            turn=1,
            parent_tool_call_id=agent,
        )
    ]


def test_an_exhausted_retry_is_a_failed_run() -> None:
    """The client reports `success` for an error."""
    events = translated(recorded("rate_limited"))

    assert {e.code for e in events if isinstance(e, ev.ErrorOccurred)} == {"rate_limit"}
    assert isinstance(events[-1], ev.RunFailed)
    assert events[-1].error["details"]["subtype"] == "success"
    assert events[-1].error["details"]["api_error_status"] == 429


def test_an_unknown_or_invalid_record_is_kept_and_never_taken_for_an_event() -> None:
    """Also after it was stored and read."""
    translator = ClaudeTranslation(ClaudeCalls())
    strange: list[dict[str, Any]] = [
        {"type": "policy_violation", "rule": "x"},
        {"type": "assistant", "message": "no object"},
        {"type": "user"},
        {"type": "system", "subtype": "brand_new"},
        {"no": "type"},
    ]

    events = [event for record in strange for event in translator.events(record)]

    assert [type(event) for event in events] == [ev.Unrecognized] * 5
    assert [type(ev.decode_event(ev.encode_event(event))) for event in events] == [ev.Unrecognized] * 5


@pytest.mark.parametrize(
    ("block", "name"),
    [
        ({"type": "server_tool_use", "name": "web_search"}, "web_search"),
        ({"type": "mcp_tool_use", "name": "push", "server_name": "git"}, "mcp__git__push"),
        ({"type": "brand_new_tool_use", "name": "act"}, "act"),
    ],
)
def test_a_tool_that_the_api_runs_is_reported_by_its_name(block: dict[str, Any], name: str) -> None:
    """No hook asks about it, so it is evaluated as it starts."""
    result = {"type": "some_tool_result", "tool_use_id": "t1", "content": "x"}
    message = {"id": "m", "content": [{"id": "t1", "input": {"a": 1}, **block}, result]}

    events = ClaudeTranslation(ClaudeCalls()).events({"type": "assistant", "message": message})

    assert list(events)[1:] == [
        ev.ToolCallStarted(tool_call_id="t1", tool_name=name, tool_input={"a": 1}, turn=1),
        ev.ToolCallCompleted(tool_call_id="t1", tool_name=name, tool_output="x"),
    ]


TEXT = {"type": "text", "text": "x"}
IMAGE = {"type": "image", "source": {"data": "AA=="}}


@pytest.mark.parametrize(("content", "output"), [
    *(("x", "x"), ([TEXT], "x"), ([TEXT, {**TEXT, "text": "y"}], "x\ny")),
    *(([TEXT, IMAGE], [TEXT, IMAGE]), ([], []), (None, None)),
])  # fmt: skip
def test_a_result_of_several_texts_is_their_text_live_and_in_the_log(
    content: Any, output: Any, tmp_path: Path
) -> None:
    """One with other blocks is as the client gives it."""
    use = {"type": "tool_use", "id": "t1", "name": "mcp__a__b", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": content}
    lines = [
        {"type": kind, "uuid": kind, "session_id": "s", "message": {"role": kind, "id": "m", "content": [block]}}
        for kind, block in (("assistant", use), ("user", result))
    ]
    (log := tmp_path / "s.jsonl").write_text("\n".join(map(json.dumps, lines)))
    translation = ClaudeTranslation(ClaudeCalls())
    live = [event for line in lines for event in translation.events(line)]
    (session,) = read_sessions([str(log)])

    for events in (live, session.events):
        assert [e.tool_output for e in events if isinstance(e, ev.ToolCallCompleted)] == [output]


def test_the_result_of_a_denied_call_is_no_outcome() -> None:
    """It is the client's text about the denial."""
    calls = ClaudeCalls()
    calls.proposed("t1", "Bash", {}, None)
    calls.refused("t1", "no")
    block = {"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": "no"}
    record = {"type": "user", "message": {"content": [block, {**block, "tool_use_id": "t2"}]}}

    events = list(ClaudeTranslation(calls).events(record))

    assert events == [ev.ToolCallFailed(tool_call_id="t2", error="no")]


def test_usage_before_the_run_is_not_counted() -> None:
    """A session's totals continue over its runs. If the client loses a price, nothing is subtracted."""
    meter = SessionMeter()
    meter.begin({"m": {"inputTokens": 1000, "outputTokens": 10, "costUSD": 0.5}})

    first = list(meter.usage_of({"m": {"inputTokens": 1100, "outputTokens": 15, "costUSD": 0.75}}))
    unknown = list(
        meter.usage_of({"m": {"inputTokens": 1101, "outputTokens": 15, "costUSD": 0, "costBasis": "unknown"}})
    )

    assert [(e.input_tokens, e.output_tokens, e.cost_usd) for e in first] == [(100, 5, 0.25)]
    assert [(e.input_tokens, e.output_tokens, e.cost_usd) for e in unknown] == [(1, 0, None)]
    assert meter.run_totals()["input_tokens"] == 101
