"""An approval lets through one call of one tool with one input, against the rules its person was shown."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.policies import Monitor, ToolCall, compile_policy, parse_policies
from proctor.policies import events as ev
from proctor.policies.events.calls import input_digest

ASKS = {"type": "blocklist", "id": "asks", "tools": ["x"], "action": "request_approval"}


def monitor_of(*rules: dict[str, Any], **more: Any) -> Monitor:
    document = {"name": "p", "on_violation": "deny", "rules": [ASKS, *rules], **more}
    return compile_policy(parse_policies(document)[0]).monitor()


def ask(monitor: Monitor, tool: str = "x", id: str = "k", **input: Any) -> tuple[str, list[str]]:
    decision = monitor.propose(ToolCall(id=id, name=tool, input=input))
    return decision.action, [violation.rule for violation in decision.violations]


def grant(tool: str = "x", id: str = "k", approval: str = "a", **input: Any) -> ev.ToolApprovalGranted:
    digest = input_digest(input)
    return ev.ToolApprovalGranted(approval_id=approval, tool_call_id=id, tool_name=tool, input_digest=digest)


def answer(kind: Any, approval: str = "a") -> Any:
    return kind(approval_id=approval, tool_call_id="k", tool_name="x")


def test_a_grant_holds_for_its_tool_and_for_its_input() -> None:
    """Granted `x`, started as another tool with the same input, or as `x` with another: a violation."""
    both = {"type": "blocklist", "id": "both", "tools": ["y"], "action": "request_approval"}
    for tool, input in (("y", {"o": 1}), ("x", {"o": 2})):
        monitor = monitor_of(both)
        ask(monitor, o=1)
        monitor.observe(grant(o=1))
        found = monitor.observe(ev.ToolCallStarted(tool_call_id="k", tool_name=tool, tool_input=input))

        assert [v.action for v in found] == ["request_approval"]


def test_a_grant_that_names_another_tool_than_its_call_says_nothing() -> None:
    """It is for a call that nobody asked for."""
    monitor = monitor_of()
    ask(monitor)
    monitor.observe(grant("y"))

    assert ask(monitor) == ("request_approval", ["asks"])


@pytest.mark.parametrize("action", ["deny", "warn", "request_approval"])
def test_a_rule_broken_while_the_call_waited_is_found_after_the_grant(action: Any) -> None:
    """The call is judged again; a rule that the person was not shown asks for itself."""
    monitor = monitor_of({"type": "never_after", "id": "late", "trigger": "y", "forbidden": "x", "action": action})
    ask(monitor)
    ask(monitor, "y", "l")
    monitor.observe(grant())
    answered = ask(monitor)

    assert answered == (action, ["late"])
    assert monitor.finish().rules["late"].status == "violated"

    if action == "request_approval":
        monitor.observe(grant(approval="b"))

        assert ask(monitor) == ("allow", [])


def test_a_second_limit_that_an_approved_call_passes_is_reported() -> None:
    """Both limits ask; the second was not shown with the first."""
    asks = {"action": "request_approval"}
    limits = {"max_tool_calls": {"max": 1, **asks}, "max_total_tokens": {"max": 9, **asks}}
    monitor = monitor_of(limits=limits)
    ask(monitor, "y", "l")
    first = ask(monitor, "y", "k")
    monitor.observe(ev.TokenUsageUpdated(input_tokens=10))
    monitor.observe(grant("y"))

    assert first == ("request_approval", ["max_tool_calls"])
    assert ask(monitor, "y", "k") == ("request_approval", ["max_total_tokens"])


@pytest.mark.parametrize("over", [ev.ToolApprovalDenied, ev.ToolApprovalExpired])
def test_a_grant_that_comes_after_another_answer_says_nothing(over: Any) -> None:
    """Refused or expired, the approval is over; the call asked for again waits for a new one."""
    monitor = monitor_of()
    ask(monitor)
    monitor.observe(answer(over))
    monitor.observe(grant())

    assert ask(monitor) == ("request_approval", ["asks"])

    monitor.observe(grant(approval="b"))

    assert ask(monitor) == ("allow", [])


def test_a_grant_that_comes_after_the_refusal_of_its_call_says_nothing() -> None:
    """The call is over; the same id asks again."""
    monitor = monitor_of()
    ask(monitor)
    monitor.observe(ev.ToolCallDenied(tool_call_id="k", tool_name="x"))
    monitor.observe(grant())

    assert ask(monitor) == ("request_approval", ["asks"])


def test_a_grant_of_another_approval_than_the_call_waits_for_says_nothing() -> None:
    """The record says which one is asked for."""
    monitor = monitor_of()
    ask(monitor)
    monitor.observe(ev.ToolApprovalRequested(approval_id="b", tool_call_id="k", tool_name="x"))
    monitor.observe(grant(approval="a"))

    assert ask(monitor) == ("request_approval", ["asks"])


def test_what_a_person_was_shown_is_kept_in_a_snapshot() -> None:
    """Restored while the call waits, the rule that was not shown still asks for itself."""
    late = {"type": "never_after", "id": "late", "trigger": "y", "forbidden": "x", "action": "request_approval"}
    document = {"name": "p", "rules": [ASKS, late]}
    compiled = compile_policy(parse_policies(document)[0])
    monitor = compiled.monitor()
    ask(monitor)
    monitor = compiled.restore(monitor.snapshot())
    ask(monitor, "y", "l")
    monitor.observe(grant())

    assert ask(compiled.restore(monitor.snapshot())) == ("request_approval", ["late"])


def test_a_grant_after_a_resumption_covers_what_its_person_was_shown_and_no_more() -> None:
    """The record of the request says which rules asked; one that asks since then was not shown to anybody."""
    late = {"type": "never_after", "id": "late", "trigger": "y", "forbidden": "x", "action": "request_approval"}
    fields: dict[str, Any] = {"tool_call_id": "k", "tool_name": "x"}
    shown = ({"policy": "p", "rule": "asks", "kind": "blocklist", "action": "request_approval"},)
    record = [
        ev.ToolCallRequested(**fields, tool_input={}),
        ev.ToolApprovalRequested(approval_id="a", **fields, tool_input={}, violations=shown),
        ev.ToolCallStarted(tool_call_id="l", tool_name="y", tool_input={}),
        grant(),
    ]
    monitor = monitor_of(late)
    for event in record:
        monitor.observe(event)

    assert ask(monitor) == ("request_approval", ["late"])


def test_what_another_call_broke_was_not_shown_to_whoever_answers_for_this_one() -> None:
    """A breaker that opens while a call waits asks for itself, live and on the record."""
    monitor = monitor_of({"type": "circuit_breaker", "id": "open", "consecutive": 1, "action": "request_approval"})
    fields: dict[str, Any] = {"tool_call_id": "k", "tool_name": "x"}
    shown = ({"policy": "p", "rule": "asks", "kind": "blocklist", "action": "request_approval"},)
    failed: dict[str, Any] = {"tool_call_id": "l", "tool_name": "y"}
    record = [
        ev.ToolCallRequested(**fields, tool_input={}),
        ev.ToolApprovalRequested(approval_id="a", **fields, tool_input={}, violations=shown),
        ev.ToolCallStarted(**failed, tool_input={}),
        ev.ToolCallFailed(**failed, error="boom"),
        ev.PolicyViolated(policy="p", rule="open", kind="circuit_breaker", action="request_approval"),
        grant(),
    ]
    for event in record:
        monitor.observe(event)

    assert ask(monitor) == ("request_approval", ["open"])
