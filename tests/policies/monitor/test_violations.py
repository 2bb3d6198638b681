"""The texts of violations: to people, what rules and limits found; to the model, only the cause."""

from typing import Any

import msgspec
import pytest

from proctor.policies import Condition, Decision
from proctor.policies import events as ev
from proctor.policies.language.predicates import condition_words
from proctor.policies.values.amounts import figure


@pytest.mark.parametrize(("condition", "words"), [
    ({"path": "$.a", "equals": "x"}, "`$.a` is `x`"),
    ({"path": "$.a", "not_equals": None}, "`$.a` is not `null`"),
    ({"path": "$.a", "exists": True}, "`$.a` is given"),
    ({"path": "$.a", "exists": False}, "`$.a` is not given"),
    ({"path": "$.a[*]", "contains": "b" * 70, "at_least": 2}, f"`$.a[*]` contains `{'b' * 57}...` 2 times"),
    ({"path": "$.a", "equals": {"arg": "$.b"}}, "`$.a` is the call's `$.b`"),
    ({"path": "$.a", "in": {"output_of": ["f", "g"], "path": "$.id"}}, "`$.a` is one of what `f` or `g` returned"),
    ({"any_of": [{"path": "$.a", "lte": 1}, {"path": "$.a", "type": "null"}]}, "(`$.a` is at most `1` or "),
])  # fmt: skip
def test_conditions_are_described_as_written(condition: Any, words: str) -> None:
    """With their operands; long operands are cut."""
    assert condition_words([msgspec.convert(condition, Condition)]).startswith(words)


@pytest.mark.parametrize(("amount", "shown"), [
    (0, "0"),
    (10, "10"),
    (5000.0, "5,000"),
    (0.25, "0.25"),
    (1.0000004, "1"),
    (3e-9, "3e-09"),
    (12_345_678, "12,345,678"),
])  # fmt: skip
def test_amounts_are_formatted_for_reading(amount: float, shown: str) -> None:
    """Whole numbers in full, and no amount as `none`."""
    assert figure(amount) == shown


def details_of(decision: Decision, rule: str) -> dict[str, Any]:
    return next(v.details for v in decision.violations if v.rule == rule)


@pytest.mark.parametrize(("carried", "of_what_ran"), [
    ({"action": "cancel"}, "interrupted"), ({}, "interrupted"), ({"unpreventable": "warn"}, "observed"),
    ({"action": "request_approval"}, "observed"),
])  # fmt: skip
def test_a_violation_says_how_far_a_sequence_got(drive: Any, carried: dict[str, str], of_what_ran: str) -> None:
    """Before a call, and after one that ran without having been proposed."""
    session = drive({"on_violation": "deny", "tool_rules": [{"deny": ["x"], **carried}]})
    (proposed,), (ran,) = session.propose("x").violations, session.saw("x")

    assert (proposed.enforcement, ran.enforcement) == ("prevented", of_what_ran)


def test_a_violation_has_its_turn_and_the_number_of_earlier_calls(drive: Any) -> None:
    session = drive({"on_violation": "deny", "tool_rules": [{"deny": ["x"]}], "limits": {"max_total_tokens": 1}})
    session.ok("y", turn=1)
    session.ok("y", turn=2)
    details = details_of(session.propose("x", turn=3), "deny-1")
    (limit,) = session.see(ev.TokenUsageUpdated(input_tokens=2))

    assert (details["turn"], details["sequence_length"]) == (3, 2)
    assert (limit.details["turn"], limit.details["sequence_length"]) == (3, 2)


@pytest.mark.parametrize(("listed", "texts", "input", "conditions"), [
    ("deny", [{"path": "$.o", "gt": 5}, {"path": "$.t", "regex": "^/etc"}], {"o": 7, "t": "/etc/passwd"},
        [("`$.o` is more than `5`", True, 7), ("`$.t` matches `^/etc`", True, "/etc/passwd")]),
    ("allow", [{"path": "$.o", "lte": 5}, {"path": "$.t[*]", "regex": "^a"}], {"o": 5, "t": ["a", "b" * 300]},
        [("`$.o` is at most `5`", True, 5), ("`$.t[*]` matches `^a`", False, ["a", "b" * 200 + "..."])]),
])  # fmt: skip
def test_a_violation_names_the_condition_and_the_value_that_satisfied_it(
    drive: Any, listed: str, texts: Any, input: Any, conditions: Any
) -> None:
    """Of the item that names the call, even if another item failed. A long value is cut."""
    session = drive({"on_violation": "deny", "tool_rules": [{listed: [{"tool": "x", "where": texts}]}]})
    details = details_of(session.propose("x", **input), f"{listed}-1")

    assert [(c["condition"], c["holds"], c["value"]) for c in details["conditions"]] == conditions


@pytest.mark.parametrize("operand", [True, {"arg": "$.ok"}])
def test_a_violation_says_what_an_earlier_call_returned_instead(drive: Any, operand: Any) -> None:
    """Whether the condition is decided when that call returns, or depends on the denied call."""
    requires = [{"prior": "y", "output": [{"path": "$.ok", "equals": operand}]}]
    session = drive({"on_violation": "deny", "rules": [{"type": "precondition", "tool": "x", "requires": requires}]})
    first = details_of(session.propose("x", ok=True), "precondition-1")
    session.ok("y", {"ok": "no"})
    details = details_of(session.propose("x", ok=True), "precondition-1")

    assert "conditions" not in first
    assert [(c["holds"], c["value"]) for c in details["conditions"]] == [(False, "no")]


@pytest.mark.parametrize(("line", "before", "suggestion"), [
    ("require a before x", 0, "call first what puts tokens where its transition takes them"),
    ("limit x to 1 per session", 1, "do without more calls of `x`, or give the net more tokens"),
    ("block x", 0, "do without `x`, or change the net"),
])  # fmt: skip
def test_a_violation_of_a_net_suggests_what_can_help(drive: Any, line: str, before: int, suggestion: str) -> None:
    """Another call first only if it can give the token that is missing."""
    session = drive({"on_violation": "deny", "nets": [line]})
    for _ in range(before):
        session.ok("x")

    assert details_of(session.propose("x"), line)["suggestion"] == suggestion
