"""The monitor never takes one input for another that was evaluated."""

from datetime import datetime
from typing import Any

import pytest

from proctor.policies import Monitor, ToolCall, compile_policy, parse_policies
from proctor.policies import events as ev
from proctor.policies.events.calls import input_digest


def compiled(*rules: dict[str, Any]) -> Any:
    return compile_policy(parse_policies({"name": "p", "on_violation": "deny", "rules": list(rules)})[0])


NEVER_TWICE = {"type": "never_after", "trigger": "x", "forbidden": "x"}
SAME = [(7, 7.0), (7.0, 7), (0, -0.0), (10**22, 1e22), ([1, {"o": [2.0]}], [1.0, {"o": [2]}])]
OTHER = [(7, 7.5), (7, "7"), (1, True), (0, False), (0, None), (9007199254740993, 9007199254740992.0)]


def start(monitor: Monitor, value: Any) -> list[str]:
    event = ev.ToolCallStarted(tool_call_id="k", tool_name="x", tool_input={"n": value})
    return [violation.rule for violation in monitor.observe(event)]


@pytest.mark.parametrize(("allowed", "ran"), SAME, ids=repr)
def test_a_number_in_another_notation_is_the_allowed_input(allowed: Any, ran: Any) -> None:
    """In flight, finished, and restored from a snapshot."""
    policy = compiled(NEVER_TWICE)
    monitor = policy.monitor()
    monitor.propose(ToolCall(id="k", name="x", input={"n": allowed}))

    assert start(policy.restore(monitor.snapshot()), ran) == []
    assert start(monitor, ran) == []

    monitor.observe(ev.ToolCallCompleted(tool_call_id="k"))

    assert start(monitor, ran) == []
    assert input_digest({"n": allowed}) == input_digest({"n": ran})


@pytest.mark.parametrize(("allowed", "ran"), OTHER, ids=repr)
def test_another_value_is_another_input(allowed: Any, ran: Any) -> None:
    """It was not allowed, so its start is evaluated."""
    monitor = compiled(NEVER_TWICE).monitor()
    monitor.propose(ToolCall(id="k", name="x", input={"n": allowed}))

    assert start(monitor, ran) == ["never_after-1"]
    assert input_digest({"n": allowed}) != input_digest({"n": ran})


@pytest.mark.parametrize("supplied", [9007199254740993, "9007199254740993", 2**64 + 1, 10**40 + 1])
def test_a_snapshot_keeps_outputs_exactly(supplied: Any) -> None:
    """A value that a tool returned supplies a call, its neighbour does not, before and after a restore."""
    where = [{"path": "$.id", "in": {"output_of": ["find"], "path": "$.id"}}]
    prior = {"prior": "find", "same": [{"path": "$.id", "prior_output_path": "$.id"}]}
    policy = compiled(
        {"type": "allowlist", "tools": ["find", {"tool": "pay", "where": where}]},
        {"type": "precondition", "tool": "pay", "requires": [prior]},
    )
    monitor = policy.monitor()
    monitor.observe(ev.ToolCallStarted(tool_call_id="f", tool_name="find"))
    monitor.observe(ev.ToolCallCompleted(tool_call_id="f", tool_output={"id": supplied}))
    for each in (
        monitor,
        policy.restore(monitor.snapshot()),
        policy.restore(policy.restore(monitor.snapshot()).snapshot()),
    ):
        calls = [ToolCall(id=f"p{n}", name="pay", input={"id": n}) for n in (int(supplied), int(supplied) - 1)]

        assert [each.propose(call).action for call in calls] == ["allow", "deny"]


def test_a_snapshot_recognises_any_call_in_flight() -> None:
    """An input nested too deeply to be stored is recognised by its digest."""
    deep: Any = 1
    for _ in range(250):
        deep = [deep]
    policy = compiled(NEVER_TWICE)
    monitor = policy.monitor()
    monitor.propose(ToolCall(id="k", name="x", input={"n": deep}))
    restored = policy.restore(policy.restore(monitor.snapshot()).snapshot())

    assert start(restored, deep) == []

    restored.observe(ev.ToolCallCompleted(tool_call_id="k"))

    assert start(restored, deep) == []


NO_OBJECTS = [None, "text", "", [], [{"n": 1}], 7, True, ("a", "b")]
OF_PYTHON = [object(), {1, 2}, b"x", datetime(2026, 1, 1), [object()], {"a": {"b": object()}}]
NO_KEYS = [{1: "x"}, {None: 1}, {"a": {("b",): 1}}, {"a": [{True: 1}]}, {b"a": 1}]


@pytest.mark.parametrize("input", [*NO_OBJECTS, *({"v": value} for value in OF_PYTHON), *NO_KEYS])
def test_a_value_outside_json_is_not_an_input(input: Any) -> None:
    """At the gate and in a running call. Every `where` would be void for it. The state can still be restored."""
    policy = compiled()
    monitor = policy.monitor()
    decision = monitor.propose(ToolCall(id="c", name="x", input=input))
    found = monitor.observe(ev.ToolCallStarted(tool_call_id="l", tool_name="x", tool_input=input))

    assert (decision.action, decision.errors) == ("deny", ("input",))
    assert input not in NO_KEYS or "every key is a text" in decision.violations[0].message
    assert [(violation.kind, violation.enforcement) for violation in found] == [("input", "interrupted")]
    policy.restore(monitor.snapshot())
