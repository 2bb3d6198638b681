"""Sessions written one a line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proctor.adapters.traces import TraceSession
from proctor.policies.events import (
    MessageReceived,
    MessageSent,
    TokenUsageUpdated,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallRequested,
    ToolCallStarted,
    TurnStarted,
    Unrecognized,
)

CALL = {"type": "tool_call", "id": "c0", "name": "read", "arguments": {"path": "a"}, "turn": 1}
RESULT = {"type": "tool_result", "id": "c0", "content": "text", "is_error": False, "turn": 1}


def test_every_kind_of_item_becomes_an_event(read_one: Callable[..., TraceSession]) -> None:
    """In the order of the record, numbered from 1, the turn kept and the response said to have started."""
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
        MessageSent(seq=1, role="user", content="read it", **stamps),
        TurnStarted(seq=2, turn=1, **stamps),
        MessageReceived(seq=3, role="assistant", content="I will", **stamps),
        TokenUsageUpdated(
            seq=4, input_tokens=9, output_tokens=2, cache_read_tokens=4, cost_usd=0.5, model="m-1", **stamps
        ),
        ToolCallStarted(seq=5, tool_call_id="c0", tool_name="read", tool_input={"path": "a"}, turn=1, **stamps),
        ToolCallCompleted(seq=6, tool_call_id="c0", tool_name="read", tool_output="text", **stamps),
    ]
    assert session.metadata == {"model": "m-1", "outcome": {"reward": 1.0}}
    assert session.complete


def kinds(session: TraceSession) -> list[type]:
    """The types of a session's events about calls."""
    return [type(event) for event in session.events if not isinstance(event, TurnStarted)]


def test_a_result_marked_as_error_is_a_failed_call(read_one: Callable[..., TraceSession]) -> None:
    """Its content is the error."""
    session = read_one({"id": "s", "events": [CALL, {**RESULT, "is_error": True, "content": "no such file"}]})

    failed = session.events[-1]
    assert isinstance(failed, ToolCallFailed)
    assert (failed.tool_name, failed.error) == ("read", "no such file")


def test_a_call_without_result_among_others_was_asked_for_and_never_ran(
    read_one: Callable[..., TraceSession],
) -> None:
    """The record ends where the agent was stopped."""
    session = read_one({"id": "s", "events": [CALL, RESULT, {**CALL, "id": "c1"}]})

    assert kinds(session) == [ToolCallStarted, ToolCallCompleted, ToolCallRequested]
    assert session.never_ran == {"c1"}


def test_in_a_record_without_any_results_each_call_is_read_as_completed(
    read_one: Callable[..., TraceSession],
) -> None:
    """Some records hold only what was called."""
    session = read_one({"id": "s", "events": [CALL, {**CALL, "id": "c1"}]})

    assert kinds(session) == [ToolCallStarted, ToolCallCompleted] * 2


def test_items_of_unknown_types_are_kept(read_one: Callable[..., TraceSession]) -> None:
    """They do not hide the ones that are known."""
    item = {"type": "thought", "text": "hm"}

    session = read_one({"id": "s", "events": [item, CALL, RESULT]})

    assert session.events[0] == Unrecognized(session_id="s", seq=1, raw=item)
    assert kinds(session)[1:] == [ToolCallStarted, ToolCallCompleted]


def test_arguments_written_as_json_text_are_read_as_an_object(read_one: Callable[..., TraceSession]) -> None:
    """As model APIs hand them over; text that is no object stands under `input`."""

    def argument(value: Any) -> Any:
        session = read_one({"id": "s", "events": [{**CALL, "arguments": value}]})
        return next(event.tool_input for event in session.events if isinstance(event, ToolCallStarted))

    assert argument('{"path": "a"}') == {"path": "a"}
    assert argument("ls -l") == {"input": "ls -l"}
    assert argument(None) == {}


def test_a_call_may_be_written_with_input_and_output(read_one: Callable[..., TraceSession]) -> None:
    """As much else does; what a rule would judge is never passed over."""
    call = {"type": "tool_call", "id": "c0", "name": "bash", "input": {"command": "rm x"}}
    session = read_one({"id": "s", "events": [call, {"type": "tool_result", "id": "c0", "output": "done"}]})

    assert session.events == [
        ToolCallStarted(seq=1, session_id="s", tool_call_id="c0", tool_name="bash", tool_input={"command": "rm x"}),
        ToolCallCompleted(seq=2, session_id="s", tool_call_id="c0", tool_name="bash", tool_output="done"),
    ]
