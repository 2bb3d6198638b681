"""Codex rollouts: one written by the real client, and forms of older ones."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proctor.adapters.traces import TraceSession, read_sessions
from proctor.policies import events as ev


@pytest.fixture
def recorded(data: Path) -> TraceSession:
    """A rollout of client 0.163: two parallel commands, a denied one, a patch, an MCP tool, two tasks."""
    (session,) = read_sessions([str(data / "codex_rollout.jsonl")])
    return session


def test_the_recorded_calls_are_found_with_their_turns_and_outcomes(recorded: TraceSession) -> None:
    """MCP tools have the model's names. A call that the user rejected was only requested. Exit codes distinguish
    completed and failed calls, and are part of the error, not of the output, nor is other text that the client adds.
    """
    calls = [event for event in recorded.events if isinstance(event, ev.ToolEvent)]
    outcomes = {event.tool_call_id: event for event in recorded.events if isinstance(event, ev.ToolOutcome)}
    failed, echoed = outcomes["call_fail"], outcomes["call_mcp"]

    assert [(call.type, call.tool_name, call.turn) for call in calls] == [
        ("tool_call_started", "shell", 1),
        ("tool_call_started", "shell", 1),
        ("tool_call_requested", "shell", 2),
        ("tool_call_started", "apply_patch", 3),
        ("tool_call_started", "mcp__small__echo", 4),
    ]
    assert calls[0].tool_input == {"command": "ls", "cwd": "/home/agent/project"}
    assert {call: event.type for call, event in outcomes.items()} == {
        "call_ls": "tool_call_completed",
        "call_fail": "tool_call_failed",
        "call_rm": "tool_call_denied",
        "call_patch": "tool_call_completed",
        "call_mcp": "tool_call_completed",
    }
    assert isinstance(failed, ev.ToolCallFailed)
    assert failed.error == {"exit_code": 3, "output": "two\n"}
    assert isinstance(patched := outcomes["call_patch"], ev.ToolCallCompleted)
    assert patched.tool_output == {"changes": ["/home/agent/project/hello.txt"]}
    assert isinstance(echoed, ev.ToolCallCompleted)
    assert echoed.tool_output == "said a"


def test_other_recorded_events_are_found_once(recorded: TraceSession) -> None:
    """Each message and each response's usage, although the rollout has them twice. Text that the client inserts is
    not the user's. Its command lines are bash's, and its last task has ended.
    """
    contents = [
        event.content for event in recorded.events if isinstance(event, ev.MessageSent) and event.role == "user"
    ]
    usage = [event for event in recorded.events if isinstance(event, ev.TokenUsageUpdated)]

    assert contents == ["Write a greeting into hello.txt", "Thank you"]
    assert len(usage) == 6
    assert (usage[0].input_tokens, usage[0].cache_read_tokens, usage[0].model) == (1000, 400, "gpt-5.5")
    assert recorded.metadata["shell"] == "bash"
    assert recorded.complete
    assert isinstance(recorded.events[-1], ev.RunCompleted)


def line(kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": "2026-01-01T00:00:00.000Z", "type": kind, "payload": payload}


META = line("session_meta", id="s")
CALL = line("response_item", type="function_call", name="shell", arguments='{"command": ["ls"]}', call_id="c")


@pytest.mark.parametrize(("output", "kind", "value"), [
    ('{"output": "hi\\n", "metadata": {"exit_code": 0, "duration_seconds": 0.1}}', "completed", "hi\n"),
    ('{"output": "no", "metadata": {"exit_code": 2}}', "failed", {"exit_code": 2, "output": "no"}),
    ("Exit code: 1\nWall time: 0 seconds\nOutput:\nno", "failed", {"exit_code": 1, "output": "no"}),
    ({"content": "no", "success": False}, "failed", "no"),
    ("exec command rejected by user", "denied", None),
    ("apply_patch verification failed: no such file", "denied", None),
    ("failed to parse function arguments: missing field `cmd`", "denied", None),
    ("write_stdin failed: Unknown process id 7", "denied", None),
    ("unable to locate image at `/a.png`", "denied", None),
    ("image path `/a` is not a file", "denied", None),
    ("anything\nExit code: 1", "completed", "anything\nExit code: 1"),
])  # fmt: skip
def test_outputs_of_older_clients_are_parsed(read_one: Any, output: Any, kind: str, value: Any) -> None:
    """JSON with an exit code, a header, an object. A command's own output is not trusted."""
    session = read_one(META, CALL, line("response_item", type="function_call_output", call_id="c", output=output))

    outcome = session.events[-1]
    assert outcome.type == f"tool_call_{kind}"
    assert getattr(outcome, "tool_output", getattr(outcome, "error", None)) == value


RUNNING = "Wall time: 0.2 seconds\nProcess running with session ID 7\nOutput:\none\n"


@pytest.mark.parametrize(("end", "outcomes"), [
    (None, [("tool_call_completed", "one\n", True), ("tool_call_completed", "two", False)]),
    ("completed", [("tool_call_completed", "two", False), ("tool_call_completed", "one\nthree\n", False)]),
    ("failed", [("tool_call_completed", "two", False), ("tool_call_failed", "one\nthree\n", None)]),
])  # fmt: skip
def test_a_background_command_ends_when_the_client_says_so(
    read_one: Any, end: str | None, outcomes: list[Any]
) -> None:
    """Its first output is neither its success nor all its output. The client logs its end on a separate line, if it
    ends.
    """

    def output(call: str, text: str) -> dict[str, Any]:
        return line("response_item", type="function_call_output", call_id=call, output=text)

    other = {**CALL, "payload": {**CALL["payload"], "call_id": "d"}}
    item = {"type": "CommandExecution", "id": "c", "status": end, "aggregated_output": "one\nthree\n"}
    ends = [line("event_msg", type="item_completed", item=item)] if end else []
    session = read_one(META, CALL, output("c", RUNNING), other, output("d", "two"), *ends)

    found = [event for event in session.events if isinstance(event, ev.ToolOutcome)]
    values = [getattr(event, "tool_output", getattr(event, "error", None)) for event in found]
    unfinished = [getattr(event, "unfinished", None) for event in found]
    assert list(zip([event.type for event in found], values, unfinished, strict=True)) == outcomes


def test_the_users_text_is_distinguished_from_inserted_text_without_events_too(read_one: Any) -> None:
    """The oldest rollouts have only the text sent to the model."""

    def sent(text: str) -> dict[str, Any]:
        return line("response_item", type="message", role="user", content=[{"type": "input_text", "text": text}])

    session = read_one(META, sent("<environment_context>x</environment_context>"), sent("hello"))

    roles = [event.role for event in session.events if isinstance(event, ev.MessageSent)]
    assert roles == ["system", "user"]


def test_repeated_running_totals_are_counted_once(read_one: Callable[..., TraceSession]) -> None:
    """Older clients repeat them with every change of the rate limits. If no line has the usage of one response, a
    total counts as one.
    """
    totals = [{"input_tokens": 5, "output_tokens": 1}, {"input_tokens": 9, "output_tokens": 2}]
    count = line(
        "event_msg", type="token_count", info={f"{name}_token_usage": totals[0] for name in ("total", "last")}
    )
    limits_only = line("event_msg", type="token_count", info=None)
    repeated = read_one(META, limits_only, count, count)
    session = read_one(META, *(line("event_msg", type="token_count", info={"total_token_usage": t}) for t in totals))

    assert sum(isinstance(event, ev.TokenUsageUpdated) for event in repeated.events) == 1
    found = [event for event in session.events if isinstance(event, ev.TokenUsageUpdated)]
    assert [(event.scope, event.input_tokens, event.output_tokens) for event in found] == [
        ("cumulative", 5, 1),
        ("cumulative", 9, 2),
    ]


@pytest.mark.parametrize(("ends", "complete", "last"), [
    (["task_started", "task_complete"], True, ev.RunCompleted),
    (["task_started", "turn_aborted"], True, ev.RunCancelled),
    (["task_started"], False, None),
])  # fmt: skip
def test_the_end_of_the_last_task_is_that_of_the_session(
    read_one: Callable[..., TraceSession], ends: list[str], complete: bool, last: type | None
) -> None:
    """A task without an end is active, or the client died."""
    session = read_one(META, *(line("event_msg", type=end) for end in ends))

    assert session.complete is complete
    assert last is None or isinstance(session.events[-1], last)


def test_local_shell_calls_and_searches_are_calls(read_one: Callable[..., TraceSession]) -> None:
    """They have no tool name: a command is a `shell` call, as in a live run, and a search is named by its kind."""
    action = {"type": "exec", "command": ["ls"]}
    session = read_one(
        META,
        line("response_item", type="local_shell_call", call_id="a", status="completed", action=action),
        line("response_item", type="web_search_call", id="w", action={"type": "search", "query": "q"}),
    )

    calls = [event for event in session.events if isinstance(event, ev.ToolCallStarted)]
    assert [(call.tool_name, call.tool_input) for call in calls] == [
        ("shell", {"command": "ls"}),
        ("web_search", {"query": "q"}),
    ]


def test_a_command_has_the_inputs_that_it_has_live(read_one: Callable[..., TraceSession]) -> None:
    """In the words of the client, not of the model, so that a rule about where it runs holds for both."""
    written = {
        "cmd": "ls",
        "workdir": "./sub/",
        "shell": "/bin/bash",
        "sandbox_permissions": "require_escalated",
        "justification": "to see",
        "timeout_ms": 5,
    }
    call = line(
        "response_item", type="function_call", name="exec_command", arguments=json.dumps(written), call_id="c"
    )
    session = read_one(META, line("turn_context", cwd="/home/agent"), call)

    (started,) = (event for event in session.events if isinstance(event, ev.ToolCallStarted))
    assert started.tool_input == {
        "command": "ls",
        "cwd": "/home/agent/sub",
        "escalated": True,
        "reason": "to see",
        "timeout_ms": 5,
    }


MAIN, AGENT = "01a22647-45af-7f92-a578-e1ed58f77169", "01a22647-4602-78e1-b665-916f0f69a9d8"
COMMAND = '{"cmd": "ls"}'
PROMPT = line("event_msg", type="user_message", message="do it", thread_id=AGENT)


def used(thread: str, tokens: int) -> dict[str, Any]:
    return line("token_usage_record", thread_id=thread, session_id=MAIN, usage={"input_tokens": tokens})


def called(name: str, call_id: str, arguments: str = "{}") -> dict[str, Any]:
    return line("response_item", type="function_call", name=name, arguments=arguments, call_id=call_id)


AGENTS_LINES = (
    line("session_meta", session_id=MAIN, id=AGENT, parent_thread_id=MAIN),
    called("exec_command", "copied", COMMAND),
    PROMPT,
    called("exec_command", "below", COMMAND),
    used(AGENT, 50),
)


@pytest.mark.parametrize("item", [
    {"type": "CollabAgentToolCall", "tool": "spawn_agent", "receiver_thread_ids": [AGENT]},
    {"type": "SubAgentActivity", "kind": "started", "agent_thread_id": AGENT},
])  # fmt: skip
def test_a_session_is_read_with_its_subagents(
    write: Callable[..., str], tmp_path: Path, item: dict[str, Any]
) -> None:
    """Their calls belong to the one that started them, and their tokens are apart. What a subagent is told is no text
    of the user's, and what its rollout has of its parent's is not read again.
    """
    main = (
        line("session_meta", session_id=MAIN, id=MAIN),
        called("spawn_agent", "start"),
        used(MAIN, 10),
        line("event_msg", type="item_completed", item={**item, "id": "start"}),
        called("wait_agent", "wait"),
    )
    later = [{**each, "timestamp": "2026-01-01T00:00:01.000Z"} for each in AGENTS_LINES]
    path = write(*main, name=f"rollout-2026-01-01T00-00-00-{MAIN}.jsonl")
    below = write(*later, name=f"rollout-2026-01-01T00-00-01-{AGENT}.jsonl")
    (session,) = read_sessions([str(tmp_path)])

    calls = [event for event in session.events if isinstance(event, ev.ToolCallStarted)]
    assert [(call.tool_call_id, call.turn, call.parent_tool_call_id) for call in calls] == [
        ("start", 1, None),
        ("wait", 2, None),
        ("below", 1, "start"),
    ]
    usage = [event for event in session.events if isinstance(event, ev.TokenUsageUpdated)]
    assert [(event.input_tokens, event.subagent_tokens) for event in usage] == [(10, 0), (50, 50)]
    assert not any(isinstance(event, ev.MessageSent) for event in session.events)
    assert [each.events for each in read_sessions([path])] == [session.events]
    assert [each.events for each in read_sessions([path, below])] == [session.events]


def test_an_unreadable_file_beside_a_session_hides_none_of_its_subagents(write: Callable[..., str]) -> None:
    path = write(line("session_meta", session_id=MAIN, id=MAIN), name=f"rollout-2026-01-01T00-00-00-{MAIN}.jsonl")
    below = write(*AGENTS_LINES, name=f"rollout-2026-01-01T00-00-01-{AGENT}.jsonl")
    write("cut", name="rollout-2026-01-01T00-00-02.jsonl")
    (session,) = read_sessions([path, below])

    calls = [event for event in session.events if isinstance(event, ev.ToolCallStarted)]
    assert [call.tool_call_id for call in calls] == ["below"]


def test_the_prompt_of_a_subagent_that_is_read_alone_is_not_the_users(read_one: Callable[..., TraceSession]) -> None:
    session = read_one(*AGENTS_LINES)

    assert [event.role for event in session.events if isinstance(event, ev.MessageSent)] == ["assistant"]


@pytest.mark.parametrize(("status", "kinds"), [
    ("completed", ["tool_call_started", "tool_call_completed"]),
    ("failed", ["tool_call_started", "tool_call_failed"]),
    ("declined", ["tool_call_requested", "tool_call_denied"]),
])  # fmt: skip
def test_a_command_that_the_client_takes_for_a_patch_is_one(
    read_one: Callable[..., TraceSession], status: str, kinds: list[str]
) -> None:
    """As in a live run; a person may decline it."""
    item = {"type": "FileChange", "id": "c", "status": status, "changes": {"/w/a": {"type": "add", "content": "x\n"}}}
    session = read_one(
        META,
        called("exec_command", "c", json.dumps({"cmd": "apply_patch <<'E'\n*** Begin Patch\n...\nE\n"})),
        line("event_msg", type="item_completed", item=item),
        line("response_item", type="function_call_output", call_id="c", output="what the model is told"),
    )

    call, *_ = calls = [event for event in session.events if isinstance(event, ev.ToolEvent | ev.ToolOutcome)]
    assert [each.type for each in calls] == kinds
    assert isinstance(call, ev.ToolEvent)
    assert call.tool_name == "apply_patch"
    assert call.tool_input == {"changes": [{"path": "/w/a", "kind": "add", "diff": "x\n"}]}


@pytest.mark.parametrize("changes", [1, [1], [{}], "ab"])
def test_changes_that_a_model_writes_in_place_of_a_patch_are_no_error(read_one: Any, changes: Any) -> None:
    """The client refuses the call, and the session is read on."""
    refusal = "failed to parse function arguments: missing field `input`"
    session = read_one(
        META,
        called("apply_patch", "c", json.dumps({"changes": changes})),
        line("response_item", type="function_call_output", call_id="c", output=refusal),
        line("response_item", type="message", role="assistant", content=[{"type": "output_text", "text": "hm"}]),
    )

    assert [event.content for event in session.events if isinstance(event, ev.MessageReceived)] == ["hm"]
    assert not [event for event in session.events if isinstance(event, ev.ToolCallCompleted)]


def test_a_call_of_the_clients_own_server_has_its_name_of_a_live_run(read_one: Callable[..., TraceSession]) -> None:
    item = {"type": "McpToolCall", "id": "c", "status": "completed", "server": "codex", "tool": "read_mcp_resource"}
    session = read_one(
        META,
        called("read_mcp_resource", "c", '{"uri": "a"}'),
        line("event_msg", type="item_completed", item={**item, "arguments": {"uri": "a"}}),
    )

    (call,) = (event for event in session.events if isinstance(event, ev.ToolCallStarted))
    assert (call.tool_name, call.tool_input) == ("mcp__codex__read_mcp_resource", {"uri": "a"})
