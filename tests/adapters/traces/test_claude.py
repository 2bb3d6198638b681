"""Claude Code session logs: one written by the real client, and rarer lines."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proctor.adapters.traces import TraceSession, read_sessions
from proctor.policies import events as ev


@pytest.fixture
def recorded(data: Path) -> TraceSession:
    """A session of client 2.1.329: two parallel commands, then a subagent in the background."""
    (session,) = read_sessions([str(data / "claude")])
    return session


def started(session: TraceSession) -> list[ev.ToolCallStarted]:
    return [event for event in session.events if isinstance(event, ev.ToolCallStarted)]


def test_the_recorded_session_is_read_with_its_subagent(recorded: TraceSession) -> None:
    """Parallel calls share the turn of their response, and the subagent's have that of the call that started it.
    Usage counts once a response, although each of its lines has it, including cache reads and writes. The client's
    notices and the subagent's prompt, which the model wrote, are not the user's.
    """
    ended = [event for event in recorded.events if isinstance(event, ev.ToolCallCompleted | ev.ToolCallFailed)]
    outcomes = {event.tool_call_id: type(event) for event in ended}
    usage = [event for event in recorded.events if isinstance(event, ev.TokenUsageUpdated)]
    messages = [
        (event.role, str(event.content)[:18]) for event in recorded.events if isinstance(event, ev.MessageEvent)
    ]
    *_, agent, inner = started(recorded)

    assert [(call.tool_name, call.turn, outcomes[call.tool_call_id]) for call in started(recorded)] == [
        ("Bash", 1, ev.ToolCallCompleted),
        ("Bash", 1, ev.ToolCallFailed),
        ("Agent", 2, ev.ToolCallCompleted),
        ("Bash", 2, ev.ToolCallCompleted),
    ]
    assert inner.tool_input["command"] == "echo inner"
    assert inner.parent_tool_call_id == agent.tool_call_id
    assert [(event.input_tokens, event.output_tokens) for event in usage] == [(157, 20), *[(100, 20)] * 5]
    assert (usage[0].cache_read_tokens, usage[0].cache_write_tokens) == (50, 7)
    assert sorted(event.subagent_tokens for event in usage) == [0, 0, 0, 0, 120, 120]
    assert [text for role, text in messages if role == "user"] == ["look at the folder"]
    assert ("assistant", "sub look around") in messages
    assert ("system", "<task-notification") in messages


@pytest.mark.parametrize("below", ["", "{}/subagents", "{}/subagents/workflows/w1"])
def test_a_log_is_read_with_its_subagents_wherever_they_are(data: Path, tmp_path: Path, below: str) -> None:
    """Even if only the log is named. Older clients have `agent-*.jsonl` in the same folder, with the session's id in
    their lines; those of a workflow are in a folder of their own.
    """
    (log,) = (data / "claude").glob("*.jsonl")
    (agent,) = (data / "claude").rglob("agent-*.jsonl")
    folder = tmp_path / below.format(log.stem)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(log, tmp_path)
    shutil.copy(agent, folder)

    for path in (log, tmp_path):
        (session,) = read_sessions([str(path)])
        assert [call.tool_name for call in started(session)] == ["Bash", "Bash", "Agent", "Bash"]


def line(kind: str, uuid: str, *blocks: Any, **more: Any) -> dict[str, Any]:
    message = {"role": kind, "content": list(blocks), **more.pop("message", {})}
    return {"type": kind, "uuid": uuid, "sessionId": "s", "parentUuid": "p", "message": message, **more}


USE = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "rm -rf /"}}
REFUSAL = {"type": "tool_result", "tool_use_id": "t1", "content": "not permitted", "is_error": True}


@pytest.mark.parametrize(("text", "role"), [
    *(("<task-notification>\n<result>pay bob</result>", "system"), ("<bash-stdout>pay bob</bash-stdout>", "system")),
    *(("<local-command-stdout>pay bob", "system"), ("<bash-input>pay bob</bash-input>", "user"), ("pay bob", "user")),
])  # fmt: skip
def test_messages_that_the_client_passes_on_are_not_the_users(
    read_one: Callable[..., TraceSession], text: str, role: str
) -> None:
    """Command outputs and subagents' reports come as user messages, and no field marks them."""
    session = read_one(line("user", "1", {"type": "text", "text": text}))

    assert [event.role for event in session.events if isinstance(event, ev.MessageSent)] == [role]


FIRED = {"type": "system", "subtype": "scheduled_task_fire", "sessionId": "s"}
PAY = {"type": "text", "text": "pay bob"}


@pytest.mark.parametrize("lines", [
    [FIRED, line("user", "1", PAY, promptSource="typed")],
    *([line("user", "1", PAY, turnOrigin=origin)] for origin in ("scheduled", "auto_continuation", "peer")),
])  # fmt: skip
def test_prompts_that_no_person_wrote_are_not_the_users(
    read_one: Callable[..., TraceSession], lines: list[dict[str, Any]]
) -> None:
    """A model can schedule a prompt; the client writes it like a person's, after a line or with an origin of its own.
    The next one is the user's.
    """
    session = read_one(*lines, line("user", "2", PAY, promptSource="typed", turnOrigin="human"))

    roles = [event.role for event in session.events if isinstance(event, ev.MessageSent)]
    assert roles == ["system", "user"]


def about_calls(session: TraceSession) -> list[type[ev.Event]]:
    """The types of the events about calls."""
    calls = ev.ToolCallRequested | ev.ToolCallStarted | ev.ToolCallDenied | ev.ToolCallFailed | ev.ToolCallCompleted
    return [type(event) for event in session.events if isinstance(event, calls)]


WRONG = {**REFUSAL, "content": "<tool_use_error>no file</tool_use_error>"}


@pytest.mark.parametrize(("noted", "kind"), [
    ("Error: no file", ev.ToolCallRequested),
    ("Error: <tool_use_error>no file</tool_use_error>", ev.ToolCallStarted),
    ([{"type": "text", "text": "<tool_use_error>no file</tool_use_error>"}], ev.ToolCallStarted),
])  # fmt: skip
def test_a_call_that_the_client_could_not_use_never_ran(
    read_one: Callable[..., TraceSession], noted: Any, kind: type[ev.Event]
) -> None:
    """It says so in its own words, which a tool can write, too: what it notes beside the result tells them apart."""
    session = read_one(line("assistant", "1", USE), line("user", "2", WRONG, toolUseResult=noted))

    assert about_calls(session) == [kind, ev.ToolCallFailed]


@pytest.mark.parametrize("mark", [
    {"toolUseResult": "User rejected tool use"},
    {"permissionDecision": {"decision": "reject", "source": "config"}},
    {"toolDenialKind": "permission-rule", "toolUseResult": "Error: not permitted"},
    {"toolDenialKind": "user-rejected", "toolUseResult": "User rejected tool use", "toolDenialBeforeRun": True},
])  # fmt: skip
def test_a_call_that_was_denied_never_ran(read_one: Callable[..., TraceSession], mark: dict[str, Any]) -> None:
    """The client says so beside the result; the text of the result is not trusted."""
    refused = read_one(line("assistant", "1", USE), line("user", "2", REFUSAL, **mark))
    claimed = read_one(
        line("assistant", "1", USE), line("user", "2", {**REFUSAL, "content": "User rejected tool use"})
    )

    assert about_calls(refused) == [ev.ToolCallRequested, ev.ToolCallDenied]
    assert about_calls(claimed) == [ev.ToolCallStarted, ev.ToolCallFailed]


@pytest.mark.parametrize("mark", [
    {"toolDenialKind": "user-rejected", "toolUseResult": "User rejected tool use"},
    {"toolDenialKind": "permission-rule", "toolDenialAfterRun": True},
])  # fmt: skip
def test_a_call_that_was_interrupted_or_whose_result_was_refused_has_run(
    read_one: Callable[..., TraceSession], mark: dict[str, Any]
) -> None:
    """The client writes of an interrupted call as of a denied one, but for a mark that it had not begun."""
    session = read_one(line("assistant", "1", USE), line("user", "2", REFUSAL, **mark))

    assert about_calls(session) == [ev.ToolCallStarted, ev.ToolCallFailed]


@pytest.mark.parametrize("time", ["2026-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00"])
def test_an_unfinished_call_is_assumed_to_have_run_once(read_one: Callable[..., TraceSession], time: str) -> None:
    """It may have, since it was ungated. Resumed sessions repeat lines. A time may be out of range in UTC."""
    last = line("assistant", "1", USE, timestamp=time)

    assert about_calls(read_one(last, last)) == [ev.ToolCallStarted]


def test_several_logs_in_one_stream_are_several_sessions(write: Callable[..., str]) -> None:
    """A new id starts a session if the conversation starts again."""
    first = {**line("user", "1", {"type": "text", "text": "a"}), "parentUuid": None}
    path = write(first, line("assistant", "2", USE), {**first, "uuid": "3", "sessionId": "other"})

    assert [session.id for session in read_sessions([path])] == ["s", "other"]


def test_the_clients_stream_of_json_lines_is_read_as_its_log(read_one: Callable[..., TraceSession]) -> None:
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
