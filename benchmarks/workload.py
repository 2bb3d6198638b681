"""The policies and sessions that are judged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from proctor.policies import CompiledPolicy, ToolCall, compile_policy, merge_policies, parse_policies
from proctor.policies.events import Event, ToolCallCompleted, ToolCallStarted

MANY = 1_000_000_000
RESOURCES = 1_000


class Step(NamedTuple):
    """One call as the gate sees it, and its two events."""

    call: ToolCall
    started: ToolCallStarted
    completed: ToolCallCompleted


def ordinary(rules: int) -> CompiledPolicy:
    """A policy of so many rules, two of which name each tool that is called: an order and a count."""
    return compiled(
        [
            {"type": "before", "first": "read", "then": "edit"},
            {"type": "count", "tool": ["read", "edit"], "max": MANY},
            *_others(rules - 2),
        ]
    )


def keyed(rules: int) -> CompiledPolicy:
    """The same with rules that hold for each file on its own."""
    return compiled(
        [
            {"type": "before", "first": "read", "then": "edit", "key": "$.path"},
            {"type": "count", "tool": ["read", "edit"], "max": MANY, "key": "$.path"},
            *_others(rules - 2),
        ]
    )


def _others(count: int) -> list[dict[str, Any]]:
    return [{"type": "count", "tool": f"tool_{n}", "max": MANY} for n in range(count)]


def compiled(rules: list[dict[str, Any]]) -> CompiledPolicy:
    """A policy of these rules."""
    return compile_policy(merge_policies(parse_policies({"name": "benchmark", "rules": rules})))


def steps(first: int, count: int) -> list[Step]:
    """Calls number `first` and on of a session that reads each file before it edits it."""
    return [_step(n) for n in range(first, first + count)]


def _step(number: int) -> Step:
    id, turn = f"call-{number}", number + 1
    name = "edit" if number % 2 else "read"
    input = {"path": f"src/file_{number // 2 % RESOURCES}.py", "line": number}
    return Step(
        ToolCall(id=id, name=name, input=input, turn=turn),
        ToolCallStarted(tool_call_id=id, tool_name=name, tool_input=input, turn=turn),
        ToolCallCompleted(tool_call_id=id, tool_name=name, tool_output="ok"),
    )


def events_of(session: Sequence[Step]) -> list[Event]:
    """Their events in order."""
    return [event for step in session for event in (step.started, step.completed)]
