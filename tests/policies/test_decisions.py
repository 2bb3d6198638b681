"""What a refused call teaches: the model by the cause, with no word of the rules; the operator by the very value."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.policies import Decision
from proctor.policies import events as ev

TOOL = "Tool 'x' is not available in this context."
INPUT = "Tool 'x' may not be used with this input."
STEP = "Tool 'x' may not be used yet."
BUDGET = "No more calls of tool 'x' are allowed in this run."
WHERE = {"tool": "x", "where": [{"path": "$.o", "equals": 1}]}
CAUSES: dict[str, tuple[dict[str, Any], list[str], str]] = {
    "deny": ({"tool_rules": [{"deny": ["x"]}]}, [], TOOL),
    "deny by an input": ({"tool_rules": [{"deny": [WHERE]}]}, [], INPUT),
    "deny by a virtual name": (
        {
            "tool_rules": [{"deny": ["one"]}],
            "virtual_tools": [{"tool": "x", "path": "$.o", "match": "1", "as": "one"}],
        },
        [],
        INPUT,
    ),
    "allow": ({"tool_rules": [{"allow": ["y"]}]}, [], TOOL),
    "allow by an input": (
        {"tool_rules": [{"allow": [{"tool": "x", "where": [{"path": "$.o", "equals": 2}]}]}]},
        [],
        INPUT,
    ),
    "blocklist": ({"rules": [{"type": "blocklist", "tools": ["x"]}]}, [], TOOL),
    "allowlist": ({"rules": [{"type": "allowlist", "tools": ["y"]}]}, [], TOOL),
    "never_after": ({"rules": [{"type": "never_after", "trigger": "y", "forbidden": "x"}]}, ["y"], TOOL),
    "forbids_after": ({"rules": [{"type": "forbids_after", "tool": "y", "tools": ["x"]}]}, ["y"], TOOL),
    "forbidden_sequence": ({"rules": [{"type": "forbidden_sequence", "sequence": ["y", "x"]}]}, ["y"], TOOL),
    "a net that blocks": ({"nets": ["block x"]}, [], TOOL),
    "provenance": (
        {"rules": [{"type": "provenance", "tool": "x", "path": "$.o", "from": ["user_message"]}]},
        [],
        INPUT,
    ),
    "loop": ({"rules": [{"type": "loop", "window": 3, "threshold": 2}]}, ["x"], INPUT),
    "before": ({"rules": [{"type": "before", "first": "y", "then": "x"}]}, [], STEP),
    "immediately_before": ({"rules": [{"type": "immediately_before", "first": "y", "then": "x"}]}, [], STEP),
    "after": ({"rules": [{"type": "after", "trigger": "y", "then": "z"}]}, ["y"], STEP),
    "eventually": ({"rules": [{"type": "eventually", "tool": "y", "within": 1}]}, [], STEP),
    "sequence": ({"rules": [{"type": "sequence", "tools": ["y", "x"]}]}, [], STEP),
    "precondition": ({"rules": [{"type": "precondition", "tool": "x", "requires": [{"prior": "y"}]}]}, [], STEP),
    "a count of the last responses": (
        {"rules": [{"type": "count", "tool": "x", "max": 1, "within_turns": 2}]},
        ["x"],
        STEP,
    ),
    "max_parallel": ({"rules": [{"type": "max_parallel", "max": 0}]}, [], STEP),
    "a net that requires": ({"nets": ["require y before x"]}, [], STEP),
    "a net that refills": ({"nets": ["limit x to 1 per y"]}, ["x"], STEP),
    "count": ({"rules": [{"type": "count", "tool": "x", "max": 1}]}, ["x"], BUDGET),
    "max_calls": ({"rules": [{"type": "max_calls", "tool": "x", "max": 1}]}, ["x"], BUDGET),
    "a limit of calls": ({"limits": {"max_tool_calls": 1}}, ["y"], BUDGET),
    "a limit of responses": ({"limits": {"max_turns": 1}}, ["y"], BUDGET),
    "a net that limits": ({"nets": ["limit x to 1 per session"]}, ["x"], BUDGET),
    "circuit_breaker": ({"rules": [{"type": "circuit_breaker", "total": 1}]}, ["!y"], BUDGET),
}


@pytest.mark.parametrize(("policy", "before", "words"), CAUSES.values(), ids=CAUSES)
def test_the_model_is_told_by_the_cause_and_nothing_of_the_rules(
    drive: Any, policy: dict[str, Any], before: list[str], words: str
) -> None:
    """The sentence names the tool and nothing else, and the violation carries it."""
    session = drive({"on_violation": "deny", **policy})
    for tool in before:
        (session.bad if tool.startswith("!") else session.ok)(tool.lstrip("!"), **({"o": 1} if tool == "x" else {}))
    decision = session.propose("x", o=1)

    assert decision.tell_model == words
    assert decision.violations[0].details["tell_model"] == words


def test_the_words_of_a_rule_come_before_every_sentence(drive: Any) -> None:
    """`tell_model` of a rule that refuses; of one that only warns it is not told."""
    session = drive(
        {
            "on_violation": "deny",
            "rules": [
                {"type": "blocklist", "tools": ["x"], "action": "warn", "tell_model": "no"},
                {"type": "before", "first": "y", "then": "x"},
                {"type": "count", "tool": "x", "max": 0, "tell_model": "Ask for less."},
            ],
        }
    )
    decision = session.propose("x")

    assert decision.tell_model == "Ask for less."
    assert ["tell_model" in v.details for v in decision.violations] == [True, True, False]


def details_of(decision: Decision, rule: str) -> dict[str, Any]:
    return next(v.details for v in decision.violations if v.rule == rule)


def test_a_violation_says_when_it_was(drive: Any) -> None:
    """The response, and how many calls came before."""
    session = drive({"on_violation": "deny", "tool_rules": [{"deny": ["x"]}], "limits": {"max_total_tokens": 1}})
    session.ok("y", turn=1)
    session.ok("y", turn=2)
    details = details_of(session.propose("x", turn=3), "deny-1")
    (limit,) = session.see(ev.TokenUsageUpdated(input_tokens=2))

    assert (details["turn"], details["sequence_length"]) == (3, 2)
    assert (limit.details["turn"], limit.details["sequence_length"]) == (3, 2)


def test_a_violation_says_which_condition_held_for_which_value(drive: Any) -> None:
    """Of a list that denies, the conditions of the item that names the call."""
    where = [{"path": "$.o", "gt": 5}, {"path": "$.t", "regex": "^/etc"}]
    session = drive({"on_violation": "deny", "tool_rules": [{"deny": [{"tool": "x", "where": where}]}]})
    details = details_of(session.propose("x", o=7, t="/etc/passwd"), "deny-1")

    assert details["conditions"] == [
        {"condition": "`$.o` is more than `5`", "holds": True, "value": 7},
        {"condition": "`$.t` matches `^/etc`", "holds": True, "value": "/etc/passwd"},
    ]


def test_a_violation_says_which_condition_of_an_allow_list_failed(drive: Any) -> None:
    """Conditions that hold are named too; a long value by its beginning."""
    where = [{"path": "$.o", "lte": 5}, {"path": "$.t[*]", "regex": "^a"}]
    session = drive({"on_violation": "deny", "tool_rules": [{"allow": [{"tool": "x", "where": where}]}]})
    details = details_of(session.propose("x", o=5, t=["a", "b" * 300]), "allow-1")

    assert details["conditions"] == [
        {"condition": "`$.o` is at most `5`", "holds": True, "value": 5},
        {"condition": "`$.t[*]` matches `^a`", "holds": False, "value": ["a", "b" * 200 + "..."]},
    ]


@pytest.mark.parametrize("operand", [True, {"arg": "$.ok"}])
def test_a_violation_says_what_an_earlier_call_returned_instead(drive: Any, operand: Any) -> None:
    """Whether the condition is settled when the call returns, or depends on the judged call."""
    requires = [{"prior": "y", "output": [{"path": "$.ok", "equals": operand}]}]
    session = drive({"on_violation": "deny", "rules": [{"type": "precondition", "tool": "x", "requires": requires}]})
    first = details_of(session.propose("x", ok=True), "precondition-1")
    session.ok("y", {"ok": "no"})
    details = details_of(session.propose("x", ok=True), "precondition-1")

    assert "conditions" not in first
    assert [(c["holds"], c["value"]) for c in details["conditions"]] == [(False, "no")]
