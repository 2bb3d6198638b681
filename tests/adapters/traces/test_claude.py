"""Claude Code session logs: one written by the real client, and lines that are rarer."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proctor.adapters.traces import TraceSession, read_sessions
from proctor.policies.events import (
    Event,
    MessageEvent,
    TokenUsageUpdated,
    ToolCallCompleted,
    ToolCallDenied,
    ToolCallFailed,
    ToolCallRequested,
    ToolCallStarted,
)


@pytest.fixture
def recorded(data: Path) -> TraceSession:
    """A session of client 2.1.329: two parallel commands, then a sub-agent in the background."""
    (session,) = read_sessions([str(data / "claude")])
    return session


def started(session: TraceSession) -> list[ToolCallStarted]:
    """The calls that ran."""
    return [event for event in session.events if isinstance(event, ToolCallStarted)]


def test_the_recorded_calls_are_found_with_their_turns_and_outcomes(recorded: TraceSession) -> None:
    """Parallel calls share the turn of their response."""
    outcomes = {
        event.tool_call_id: type(event)
        for event in recorded.events
        if isinstance(event, ToolCallCompleted | ToolCallFailed)
    }

    assert [(call.tool_name, call.turn, outcomes[call.tool_call_id]) for call in started(recorded)] == [
        ("Bash", 1, ToolCallCompleted),
        ("Bash", 1, ToolCallFailed),
        ("Agent", 2, ToolCallCompleted),
        ("Bash", 2, ToolCallCompleted),
    ]


def test_the_sub_agents_calls_name_the_call_that_started_it(recorded: TraceSession) -> None:
    """They are read from its own log and carry the turn of that call."""
    *_, agent, inner = started(recorded)

    assert inner.tool_input["command"] == "echo inner"
    assert inner.parent_tool_call_id == agent.tool_call_id


def test_usage_is_counted_once_a_response_though_it_is_written_on_each_of_its_lines(
    recorded: TraceSession,
) -> None:
    """Input includes what was read from and written to the cache; the sub-agent's usage counts too."""
    usage = [event for event in recorded.events if isinstance(event, TokenUsageUpdated)]

    assert [(event.input_tokens, event.output_tokens) for event in usage] == [(157, 20), *[(100, 20)] * 5]
    assert (usage[0].cache_read_tokens, usage[0].cache_write_tokens) == (50, 7)


def test_only_what_the_user_typed_is_the_users(recorded: TraceSession) -> None:
    """The client's notices and the sub-agent's prompt, which the model wrote, are not."""
    messages = [(event.role, str(event.content)[:18]) for event in recorded.events if isinstance(event, MessageEvent)]

    assert [text for role, text in messages if role == "user"] == ["look at the folder"]
    assert ("assistant", "sub look around") in messages
    assert ("system", "<task-notification") in messages


def test_a_log_is_read_with_its_sub_agents_when_only_the_log_is_named(data: Path) -> None:
    """They are part of the session, wherever it is found."""
    (log,) = (data / "claude").glob("*.jsonl")

    (session,) = read_sessions([str(log)])

    assert len(started(session)) == 4


def test_sub_agents_of_older_clients_are_found_beside_the_log(data: Path, tmp_path: Path) -> None:
    """`agent-*.jsonl` in the same folder names its session in its lines."""
    (log,) = (data / "claude").glob("*.jsonl")
    (agent,) = (data / "claude").rglob("agent-*.jsonl")
    shutil.copy(log, tmp_path)
    shutil.copy(agent, tmp_path)

    (session,) = read_sessions([str(tmp_path)])

    assert [call.tool_name for call in started(session)] == ["Bash", "Bash", "Agent", "Bash"]


def line(kind: str, uuid: str, *blocks: Any, **more: Any) -> dict[str, Any]:
    """One line of a log."""
    message = {"role": kind, "content": list(blocks), **more.pop("message", {})}
    return {"type": kind, "uuid": uuid, "sessionId": "s", "parentUuid": "p", "message": message, **more}


USE = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "rm -rf /"}}
REFUSAL = {"type": "tool_result", "tool_use_id": "t1", "content": "not permitted", "is_error": True}


def about_calls(session: TraceSession) -> list[type[Event]]:
    """The types of the events about calls."""
    calls = ToolCallRequested | ToolCallStarted | ToolCallDenied | ToolCallFailed | ToolCallCompleted
    return [type(event) for event in session.events if isinstance(event, calls)]


@pytest.mark.parametrize(
    "mark",
    [
        {"toolUseResult": "User rejected tool use"},
        {"permissionDecision": {"decision": "reject", "source": "config"}},
    ],
)
def test_a_call_that_was_not_permitted_never_ran(read_one: Callable[..., TraceSession], mark: dict[str, Any]) -> None:
    """The client says so beside the result; what the result says is not believed."""
    refused = read_one(line("assistant", "1", USE), line("user", "2", REFUSAL, **mark))
    claimed = read_one(
        line("assistant", "1", USE), line("user", "2", {**REFUSAL, "content": "User rejected tool use"})
    )

    assert about_calls(refused) == [ToolCallRequested, ToolCallDenied]
    assert about_calls(claimed) == [ToolCallStarted, ToolCallFailed]


def test_a_call_the_log_ends_with_is_taken_to_have_run(read_one: Callable[..., TraceSession]) -> None:
    """It may have: nothing held it."""
    assert about_calls(read_one(line("assistant", "1", USE))) == [ToolCallStarted]


def test_a_line_written_twice_counts_once(read_one: Callable[..., TraceSession]) -> None:
    """Resumed sessions repeat lines."""
    assert len(started(read_one(line("assistant", "1", USE), line("assistant", "1", USE)))) == 1


def test_several_logs_in_one_stream_are_several_sessions(write: Callable[..., str]) -> None:
    """Another id begins another session where the conversation begins anew."""
    first = {**line("user", "1", {"type": "text", "text": "a"}), "parentUuid": None}
    path = write(first, line("assistant", "2", USE), {**first, "uuid": "3", "sessionId": "other"})

    assert [session.id for session in read_sessions([path])] == ["s", "other"]


def test_the_clients_stream_of_json_lines_reads_as_its_log_does(read_one: Callable[..., TraceSession]) -> None:
    """`--output-format stream-json` spells the ids differently."""
    use = {
        "type": "assistant",
        "session_id": "s",
        "uuid": "1",
        "parent_tool_use_id": "t0",
        "message": {"role": "assistant", "id": "m", "content": [USE]},
    }

    session = read_one({"type": "system", "subtype": "init", "session_id": "s"}, use)

    (call,) = started(session)
    assert (session.id, call.parent_tool_call_id) == ("s", "t0")
