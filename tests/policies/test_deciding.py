"""Deciding and spending are two steps: a decision spends nothing, the start of the call does, once."""

from __future__ import annotations

from typing import Any

from proctor.policies import Decision, Monitor, ToolCall, compile_policy, parse_policies
from proctor.policies import events as ev


def monitor(**policy: Any) -> Monitor:
    return compile_policy(parse_policies({"name": "p", "on_violation": "deny", **policy})[0]).monitor()


def decided(on: Monitor, id: str, tool: str = "x", turn: int = 0) -> str:
    """The action of the decision on a call, which was asked for."""
    decision = on.decide(ToolCall(id=id, name=tool, turn=turn))
    assert isinstance(decision, Decision)
    return decision.action


def start(on: Monitor, id: str, tool: str = "x", turn: int = 0, **input: Any) -> list[str]:
    event = ev.ToolCallStarted(tool_call_id=id, tool_name=tool, tool_input=input, turn=turn)
    return [violation.rule for violation in on.observe(event)]


ONCE = {"rules": [{"type": "count", "id": "once", "tool": "x", "max": 1}]}


def test_a_decision_spends_nothing_and_the_start_of_its_call_does() -> None:
    """Two calls are allowed while none has started; the one that starts is not judged again."""
    on = monitor(**ONCE)

    assert [decided(on, "a"), decided(on, "b")] == ["allow", "allow"]
    assert start(on, "a") == []
    assert decided(on, "c") == "deny"


def test_what_starts_is_spent_once_however_often_that_is_reported() -> None:
    """A client tells a start again; live and from the record the same is left."""
    on = monitor(rules=[{"type": "count", "tool": "x", "max": 2}])
    decided(on, "a")
    for _ in range(3):
        assert start(on, "a") == []

    assert decided(on, "b") == "allow"


def test_a_call_that_starts_with_another_input_than_was_decided_is_judged_as_it_runs() -> None:
    """What was allowed says nothing of it."""
    on = monitor(tool_rules=[{"deny": [{"tool": "x", "where": [{"path": "$.n", "equals": 1}]}], "id": "one"}])

    assert decided(on, "a") == "allow"
    assert start(on, "a", n=1) == ["one"]


def test_a_call_is_decided_once() -> None:
    """Its id is in use from then on, and the second decision does not end the call that runs."""
    on = monitor(**ONCE)

    assert [decided(on, "a"), decided(on, "a")] == ["allow", "deny"]
    on.observe(ev.ToolCallDenied(tool_call_id="a", tool_name="x"))
    assert start(on, "a") == []
    assert on.calls["a"].runs


def test_a_call_is_decided_as_things_stand_when_it_is_decided() -> None:
    """Its response was not over when it was asked for, and is now."""
    on = monitor(rules=[{"type": "max_parallel", "tool": "*", "max": 1}])
    on.observe(ev.TurnStarted(turn=1))
    start(on, "a", turn=1)
    on.observe(ev.ToolCallRequested(tool_call_id="b", tool_name="x", tool_input={}))
    before = decided(compile_policy(parse_policies({"name": "q"})[0]).monitor(), "b"), decided(on, "b")
    on.observe(ev.TurnStarted(turn=2))

    assert (before, decided(on, "b")) == (("allow", "deny"), "allow")


def test_a_call_that_was_decided_and_never_started_has_not_failed() -> None:
    """It was refused, or an outcome was made up; what a start would have spent is not given back."""
    on = monitor(rules=[{"type": "forbids_after", "id": "after", "tool": "x", "tools": ["y"]}])
    start(on, "s", o=1)
    decided(on, "a")
    for made_up in (ev.ToolCallFailed, ev.ToolCallCompleted):
        on.observe(made_up(tool_call_id="a", tool_name="x"))
    assert "a" in on.calls
    on.observe(ev.ToolCallDenied(tool_call_id="a", tool_name="x"))

    assert "a" not in on.calls
    assert decided(on, "b", "y") == "deny"
