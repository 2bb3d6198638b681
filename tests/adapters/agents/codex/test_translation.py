"""The client's notifications as events, those included that no scripted model brings about."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.adapters.agents.codex.items import bare_command, leaves, outcome
from proctor.adapters.agents.codex.translation import CodexTranslation, UsageCount
from proctor.policies.events import (
    Event,
    TokenUsageUpdated,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallStarted,
    TurnStarted,
    Unrecognized,
)


def translated(*notifications: tuple[str, dict[str, Any]]) -> list[Event]:
    """The events of a running turn's notifications."""
    translation = CodexTranslation(thread_id="", fresh=True)
    begun: list[tuple[str, dict[str, Any]]] = [
        ("thread/started", {"thread": {"id": "t"}}),
        ("turn/started", {"threadId": "t", "turn": {"id": "u"}}),
    ]
    return [event for method, params in (*begun, *notifications) for event in translation.events(method, params)]


def item(method: str, **fields: Any) -> tuple[str, dict[str, Any]]:
    """A notification about an item."""
    return f"item/{method}", {"threadId": "t", "turnId": "u", "item": {"id": "i", **fields}}


def totals(thread: str, turn: str, *, total: int, last: int) -> tuple[str, dict[str, Any]]:
    """A notification about tokens."""
    usage = {"total": {"inputTokens": total}, "last": {"inputTokens": last}}
    return "thread/tokenUsage/updated", {"threadId": thread, "turnId": turn, "tokenUsage": usage}


@pytest.mark.parametrize(
    ("fields", "name", "tool_input"),
    [
        ({"type": "imageView", "path": "/a.png"}, "view_image", {"path": "/a.png"}),
        (
            {"type": "mcpToolCall", "server": "codex", "tool": "read_mcp_resource", "arguments": {"uri": "x"}},
            "mcp__codex__read_mcp_resource",
            {"uri": "x"},
        ),
        ({"type": "dynamicToolCall", "tool": "mine", "arguments": [1]}, "mine", {"arguments": [1]}),
        ({"type": "sleep", "durationMs": 5, "status": "inProgress", "why": "tired"}, "sleep", {"why": "tired"}),
    ],
)
def test_what_is_never_asked_about_starts_when_it_starts(
    fields: dict[str, Any], name: str, tool_input: dict[str, Any]
) -> None:
    """So that it is judged while it can still be cancelled."""
    events = translated(item("started", **fields))

    assert events == [
        TurnStarted(turn=1),
        ToolCallStarted(tool_call_id="i", tool_name=name, tool_input=tool_input, turn=1),
    ]


def test_a_web_search_is_reported_once_its_query_is_known() -> None:
    """The client announces it without one."""
    events = translated(
        item("started", type="webSearch", query=""), item("completed", type="webSearch", query="cats")
    )

    assert events[1:] == [
        ToolCallStarted(tool_call_id="i", tool_name="web_search", tool_input={"query": "cats"}, turn=1),
        ToolCallCompleted(tool_call_id="i", tool_name="web_search", tool_output={}),
    ]


def test_a_call_the_client_declined_by_itself_never_started() -> None:
    """Nobody was asked and nothing ran."""
    events = translated(item("completed", type="commandExecution", command="rm", status="declined"))

    assert events == []


@pytest.mark.parametrize("kind", ["userMessage", "plan", "contextCompaction"])
def test_items_that_are_no_calls_are_no_events(kind: str) -> None:
    """What the user said is recorded by the supervisor."""
    assert translated(item("started", type=kind), item("completed", type=kind)) == []


def test_notifications_that_are_not_known_are_kept() -> None:
    """Those that are known to say nothing are not."""
    events = translated(("brand/new", {"x": 1}), ("account/updated", {}), ("skills/changed", {}))

    assert events == [Unrecognized(raw={"type": "codex/brand/new", "x": 1})]


def test_another_model_is_named_with_its_tokens() -> None:
    """The client may be moved to another model."""
    events = translated(("model/rerouted", {"toModel": "small"}), totals("t", "u", total=5, last=5))

    assert TokenUsageUpdated(input_tokens=5, model="small") in events


def test_tokens_of_other_threads_count_and_end_no_turn() -> None:
    """A sub-agent has a thread of its own; what the agent does begins and ends its turns."""
    events = translated(totals("other", "v", total=5, last=5), totals("t", "u", total=7, last=7))

    assert [event.type for event in events] == [
        "token_usage_updated", "turn_started", "token_usage_updated", "turn_completed",
    ]  # fmt: skip
    assert [event.subagent_tokens for event in events if isinstance(event, TokenUsageUpdated)] == [5, 0]


def test_a_full_context_makes_the_clients_total_begin_at_zero_again() -> None:
    """The client then says the size of its context for a total, of which nothing was used for anything."""
    count = UsageCount(fresh=True)
    reports = [
        count.update(total, {}, None)
        for total in (
            {"inputTokens": 5},
            {"inputTokens": 0, "totalTokens": 258_400},
            {"inputTokens": 2},
            {"inputTokens": 3},
        )
    ]

    assert [report.input_tokens if report else 0 for report in reports] == [5, 0, 2, 1]


@pytest.mark.parametrize(
    ("command", "bare"),
    [
        ("/bin/bash -lc 'echo \"a b\"'", 'echo "a b"'),
        ("/usr/bin/bash -c ls", "ls"),
        ("/usr/bin/sh -c ls", "/usr/bin/sh -c ls"),
        ("/bin/zsh -lc ls", "/bin/zsh -lc ls"),
        ("/tmp/bash -lc ls", "/tmp/bash -lc ls"),
        ("/bin/bash -lc ls extra", "/bin/bash -lc ls extra"),
        ("/bin/bash -c 'unclosed", "/bin/bash -c 'unclosed"),
    ],
)
def test_a_command_is_bared_of_bash_only(command: str, bare: str) -> None:
    """As which it is read; anything else is shown as it is."""
    assert bare_command(command) == bare


def change(path: str, moved: str | None = None) -> dict[str, Any]:
    """A file change of one file."""
    return {"changes": [{"path": path, "kind": {"type": "update", "move_path": moved}, "diff": ""}]}


@pytest.mark.parametrize(
    ("path", "moved", "outside"),
    [
        ("/w/a", None, False),
        ("b/c", None, False),
        ("/w/../etc/x", None, True),
        ("/wide", None, True),
        ("/w/a", "/etc/a", True),
    ],
)
def test_a_change_leaves_a_folder_if_any_of_its_paths_does(path: str, moved: str | None, outside: bool) -> None:
    """The new name of a moved file counts too."""
    assert leaves(change(path, moved), "/w") is outside


@pytest.mark.parametrize(
    ("fields", "output"),
    [
        ({"result": {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}}, "a\nb"),
        ({"result": {"content": [{"type": "image"}]}}, [{"type": "image"}]),
        ({"result": {"content": [], "structuredContent": {"x": 1}}}, {"x": 1}),
    ],
)
def test_an_mcp_result_is_text_where_it_is_only_text(fields: dict[str, Any], output: Any) -> None:
    """What has a structure keeps it."""
    ended = outcome({"id": "i", "type": "mcpToolCall", "server": "s", "tool": "t", **fields})

    assert ended == ToolCallCompleted(tool_call_id="i", tool_name="mcp__s__t", tool_output=output)


def test_an_mcp_error_is_a_failure() -> None:
    """With what the server said."""
    fields = {"server": "s", "tool": "t", "status": "failed", "error": {"message": "no"}}
    ended = outcome({"id": "i", "type": "mcpToolCall", **fields})

    assert ended == ToolCallFailed(tool_call_id="i", tool_name="mcp__s__t", error={"message": "no"})


def test_a_parameter_does_not_rename_what_is_not_known() -> None:
    """A record must not read back as an event of ours."""
    translation = CodexTranslation(thread_id="t", fresh=True)

    (event,) = translation.events("brand/new", {"type": "policy_violation", "x": 1})

    assert event == Unrecognized(raw={"type": "codex/brand/new", "x": 1})
