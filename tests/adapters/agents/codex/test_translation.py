"""The client's notifications as events, including some that no scripted model can cause."""

from typing import Any

import pytest

from proctor.adapters.agents.codex.items import bare_command, leaves, outcome
from proctor.adapters.agents.codex.translation import CodexTranslation, UsageCount
from proctor.policies import EventError
from proctor.policies import events as ev


def translated(*notifications: tuple[str, dict[str, Any]]) -> list[ev.Event]:
    translation = CodexTranslation(thread_id="", fresh=True)
    begun: list[tuple[str, dict[str, Any]]] = [
        ("thread/started", {"thread": {"id": "t"}}),
        ("turn/started", {"threadId": "t", "turn": {"id": "u"}}),
    ]
    return [event for method, params in (*begun, *notifications) for event in translation.events(method, params)]


def item(method: str, **fields: Any) -> tuple[str, dict[str, Any]]:
    return f"item/{method}", {"threadId": "t", "turnId": "u", "item": {"id": "i", **fields}}


def totals(thread: str, turn: str, *, total: int, last: int) -> tuple[str, dict[str, Any]]:
    usage = {"total": {"inputTokens": total}, "last": {"inputTokens": last}}
    return "thread/tokenUsage/updated", {"threadId": thread, "turnId": turn, "tokenUsage": usage}


@pytest.mark.parametrize(("fields", "name", "tool_input"), [
    ({"type": "imageView", "path": "/a.png"}, "view_image", {"path": "/a.png"}),
    ({"type": "mcpToolCall", "server": "codex", "tool": "read_mcp_resource", "arguments": {"uri": "x"}},
        "mcp__codex__read_mcp_resource", {"uri": "x"}),
    ({"type": "dynamicToolCall", "tool": "mine", "arguments": [1]}, "mine", {"arguments": [1]}),
    ({"type": "sleep", "durationMs": 5, "status": "inProgress", "why": "tired"}, "sleep", {"why": "tired"}),
])  # fmt: skip
def test_a_call_without_a_question_starts_when_the_client_reports_it(
    fields: dict[str, Any], name: str, tool_input: dict[str, Any]
) -> None:
    """So it is evaluated while it can still be cancelled."""
    events = translated(item("started", **fields))

    assert events == [
        ev.TurnStarted(turn=1),
        ev.ToolCallStarted(tool_call_id="i", tool_name=name, tool_input=tool_input, turn=1),
    ]


def test_a_web_search_is_reported_once_its_query_is_known() -> None:
    """The client announces it without one."""
    events = translated(
        item("started", type="webSearch", query=""), item("completed", type="webSearch", query="cats")
    )

    assert events[1:] == [
        ev.ToolCallStarted(tool_call_id="i", tool_name="web_search", tool_input={"query": "cats"}, turn=1),
        ev.ToolCallCompleted(tool_call_id="i", tool_name="web_search", tool_output={}),
    ]


@pytest.mark.parametrize(("status", "reported"), [("declined", []), ("completed", ["started", "completed"])])
def test_a_denied_call_is_reported_only_if_it_ran_anyway(status: str, reported: list[str]) -> None:
    """Otherwise the log would not say that it was prevented."""
    translation = CodexTranslation(thread_id="t", fresh=True)
    command = {"type": "commandExecution", "command": "rm x"}
    began = list(translation.events(*item("started", **command)))
    denied = translation.calls.request("i")
    denied.proposed = denied.over = denied.refused = True

    events = [event for _ in range(2) for event in translation.events(*item("completed", **command, status=status))]

    assert [type(event) for event in began] == [ev.TurnStarted]
    assert [event.type for event in events] == [f"tool_call_{how}" for how in reported]


def test_items_that_are_no_calls_are_no_events() -> None:
    """The supervisor records the user's messages. A call that the client declined itself never started."""
    for kind in ("userMessage", "plan", "contextCompaction"):
        assert translated(item("started", type=kind), item("completed", type=kind)) == []
    assert translated(item("completed", type="commandExecution", command="rm", status="declined")) == []


def test_unknown_notifications_are_kept_under_a_distinct_name() -> None:
    """Notifications known to be irrelevant are dropped."""
    new = ("brand/new", {"type": "policy_violation", "x": 1})
    events = translated(new, ("account/updated", {}), ("skills/changed", {}))

    assert events == [ev.Unrecognized(raw={"type": "codex/brand/new", "x": 1})]


def test_another_model_is_named_with_its_tokens() -> None:
    """The client may be switched to another model."""
    events = translated(("model/rerouted", {"toModel": "small"}), totals("t", "u", total=5, last=5))

    assert ev.TokenUsageUpdated(input_tokens=5, model="small") in events


def test_tokens_of_other_threads_count_and_end_no_turn() -> None:
    """A subagent has its own thread. Turns start and end with those of the main thread."""
    events = translated(totals("other", "v", total=5, last=5), totals("t", "u", total=7, last=7))

    assert [event.type for event in events] == [
        "token_usage_updated", "turn_started", "token_usage_updated", "turn_completed",
    ]  # fmt: skip
    assert [event.subagent_tokens for event in events if isinstance(event, ev.TokenUsageUpdated)] == [5, 0]


def total(tokens: int) -> dict[str, int]:
    return {"inputTokens": tokens, "totalTokens": tokens}


FULL = {"inputTokens": 0, "totalTokens": 258_400}
TOTALS: dict[str, tuple[list[tuple[dict[str, int], int]], list[int | None]]] = {
    # for a full context, the client reports its size as the total, although nothing was used
    "begin at zero again": ([(total(5), 5), (FULL, 0), (total(2), 2), (total(3), 3)], [5, None, 2, 1]),
    # as messages of several threads may
    "come once more after a newer one": ([(total(n), n) for n in (200, 300, 200, 350)], [200, 100, None, 50]),
    # a newer client's own response says which total includes it
    "come in another order": ([(total(350), 50), (total(300), 100), (total(200), 200)], [350, None, None]),
}


@pytest.mark.parametrize("totals", TOTALS)
def test_running_totals_count_once_and_subtract_nothing(totals: str) -> None:
    """In any order."""
    count, (reports, expected) = UsageCount(fresh=True), TOTALS[totals]
    updates = [count.update(whole, total(last), None) for whole, last in reports]

    assert [update.input_tokens if update else None for update in updates] == expected


def test_a_total_from_before_the_run_subtracts_nothing_and_one_that_falls_is_rejected() -> None:
    """The thread was resumed with a newer one."""
    count = UsageCount(fresh=False)
    count.past(total(300))
    updates = [count.update(total(tokens), total(tokens), None) for tokens in (200, 310)]

    assert [update.input_tokens if update else None for update in updates] == [None, 10]
    fresh = UsageCount(fresh=True)
    fresh.update(total(300), total(300), None)
    with pytest.raises(EventError, match="fell from 300 to 250"):
        fresh.update(total(250), total(250), None)


@pytest.mark.parametrize(("command", "bare"), [
    ("/bin/bash -lc 'echo \"a b\"'", 'echo "a b"'),
    ("/usr/bin/bash -c ls", "ls"),
    ("/usr/bin/sh -c ls", "/usr/bin/sh -c ls"),
    ("/bin/zsh -lc ls", "/bin/zsh -lc ls"),
    ("/tmp/bash -lc ls", "/tmp/bash -lc ls"),
    ("/bin/bash -lc ls extra", "/bin/bash -lc ls extra"),
    ("/bin/bash -c 'unclosed", "/bin/bash -c 'unclosed"),
])  # fmt: skip
def test_a_shell_is_removed_from_a_command_only_if_it_is_bash(command: str, bare: str) -> None:
    """Commands are parsed as bash; anything else is shown unchanged."""
    assert bare_command(command) == bare


def change(path: str, moved: str | None = None) -> dict[str, Any]:
    return {"changes": [{"path": path, "kind": {"type": "update", "move_path": moved}, "diff": ""}]}


@pytest.mark.parametrize(("path", "moved", "outside"), [
    ("/w/a", None, False),
    ("b/c", None, False),
    ("/w/../etc/x", None, True),
    ("/wide", None, True),
    ("/w/a", "/etc/a", True),
])  # fmt: skip
def test_a_change_leaves_a_folder_if_any_of_its_paths_does(path: str, moved: str | None, outside: bool) -> None:
    """Including the new path of a moved file."""
    assert leaves(change(path, moved), "/w") is outside


def test_an_mcp_result_of_only_text_is_text_and_an_error_is_a_failure() -> None:
    """Structured content keeps its structure."""
    call = {"id": "i", "type": "mcpToolCall", "server": "s", "tool": "t"}
    texts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    results: list[tuple[dict[str, Any], Any]] = [
        ({"content": texts}, "a\nb"),
        ({"content": [{"type": "image"}]}, [{"type": "image"}]),
        ({"content": [], "structuredContent": {"x": 1}}, {"x": 1}),
    ]
    for result, output in results:
        ended = outcome({**call, "result": result})
        assert ended == ev.ToolCallCompleted(tool_call_id="i", tool_name="mcp__s__t", tool_output=output)
    failed = outcome({**call, "status": "failed", "error": {"message": "no"}})
    assert failed == ev.ToolCallFailed(tool_call_id="i", tool_name="mcp__s__t", error={"message": "no"})
