"""Inputs and approvals at a monitor: no other input passes for one that was judged, no approval counts twice."""

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
def test_a_number_that_starts_in_another_writing_is_the_input_that_was_allowed(allowed: Any, ran: Any) -> None:
    """In flight, over, and restored from a snapshot."""
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
    """It was not allowed, so its start is judged."""
    monitor = compiled(NEVER_TWICE).monitor()
    monitor.propose(ToolCall(id="k", name="x", input={"n": allowed}))

    assert start(monitor, ran) == ["never_after-1"]
    assert input_digest({"n": allowed}) != input_digest({"n": ran})


def test_an_approval_holds_for_the_same_number_in_another_writing() -> None:
    """It is bound to the input, not to its writing."""
    monitor = compiled({"type": "blocklist", "tools": ["x"], "action": "request_approval"}).monitor()
    shown = monitor.propose(ToolCall(id="k", name="x", input={"n": 7}))
    monitor.observe(
        ev.ToolApprovalGranted(approval_id="a", tool_call_id="k", tool_name="x", input_digest=shown.input_digest)
    )

    assert monitor.propose(ToolCall(id="k", name="x", input={"n": 7.0})).action == "allow"


@pytest.mark.parametrize("supplied", [9007199254740993, "9007199254740993", 2**64 + 1, 10**40 + 1])
def test_a_snapshot_keeps_what_was_returned_exactly(supplied: Any) -> None:
    """The value that a tool returned is supplied, its neighbour is not, before and after."""
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


def test_a_snapshot_knows_a_call_in_flight_whatever_its_input() -> None:
    """An input that is too deep to be kept is known by its mark."""
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
def test_what_json_does_not_have_is_not_an_input(input: Any) -> None:
    """At the gate and where it runs already; every `where` would be void on it. The state can still be restored."""
    policy = compiled()
    monitor = policy.monitor()
    decision = monitor.propose(ToolCall(id="c", name="x", input=input))
    found = monitor.observe(ev.ToolCallStarted(tool_call_id="l", tool_name="x", tool_input=input))

    assert (decision.action, decision.errors) == ("deny", ("input",))
    assert input not in NO_KEYS or "every key is a text" in decision.violations[0].message
    assert [(violation.kind, violation.enforcement) for violation in found] == [("input", "interrupted")]
    policy.restore(monitor.snapshot())


def test_the_model_is_told_that_an_id_is_in_use() -> None:
    """And not that the tool is missing: another id is what helps."""
    monitor = compiled().monitor()
    monitor.propose(ToolCall(id="k", name="x", input={"n": 1}))
    decision = monitor.propose(ToolCall(id="k", name="x", input={"n": 2}))

    text = "This call of tool 'x' has the id of a call that has not ended. Use another id."
    assert (decision.action, decision.tell_model) == ("deny", text)
    assert [(found.kind, found.details["tell_model"]) for found in decision.violations] == [("tool_call_id", text)]


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


def test_a_violation_of_no_call_is_not_covered_by_the_approval_of_a_call_that_waits_again() -> None:
    """The person who answers was not shown it; folded from the record, too."""
    breaker = {"type": "circuit_breaker", "id": "b", "total": 1, "action": "request_approval"}
    monitor = monitor_of(breaker)
    call: dict[str, Any] = {"tool_call_id": "k", "tool_name": "x"}
    held: dict[str, Any] = {**call, "held": True, "violations": [{"policy": "p", "rule": "asks"}]}
    for event in (
        ev.ToolCallRequested(**call),
        ev.ToolApprovalRequested(**held, approval_id="a"),
        grant(),
        ev.ToolApprovalRequested(**held, approval_id="again"),
        ev.ToolCallStarted(tool_call_id="f", tool_name="y"),
        ev.ToolCallFailed(tool_call_id="f", tool_name="y"),
        ev.PolicyViolated(policy="p", rule="b", kind="circuit_breaker", action="request_approval"),
        grant(approval="again"),
    ):
        monitor.observe(event)

    assert ask(monitor) == ("request_approval", ["b"])


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


@pytest.mark.parametrize(
    ("before", "given"),
    [
        ([], grant("y")),
        ([answer(ev.ToolApprovalDenied)], grant()),
        ([answer(ev.ToolApprovalExpired)], grant()),
        ([ev.ToolCallDenied(tool_call_id="k", tool_name="x")], grant()),
        ([ev.ToolApprovalRequested(approval_id="b", tool_call_id="k", tool_name="x")], grant(approval="a")),
    ],
    ids=["of another tool", "refused before", "expired before", "its call refused before", "of another approval"],
)
def test_a_grant_of_what_the_call_does_not_wait_for_says_nothing(before: list[Any], given: Any) -> None:
    """The call asked for again waits for a new one."""
    monitor = monitor_of()
    ask(monitor)
    for event in (*before, given):
        monitor.observe(event)

    assert ask(monitor) == ("request_approval", ["asks"])

    monitor.observe(grant(approval="b"))

    assert ask(monitor) == ("allow", [])


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
