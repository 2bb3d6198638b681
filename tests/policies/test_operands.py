"""`{arg: ...}` refers to the call being judged: where no call is judged it is an error at load."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.policies import PolicyError, parse_policies

from .test_schema import RULE_EXAMPLES

SELF = {"tool": "x", "where": [{"path": "$.a", "equals": {"arg": "$.b"}}]}
INSIDE = {"tool": "x", "where": [{"not": [{"any_of": [{"path": "$.a", "equals": {"arg": "$.b"}}]}]}]}

NOT_JUDGED: dict[str, dict[str, Any]] = {
    "before.first": {"type": "before", "first": SELF, "then": "y"},
    "before.first in a list": {"type": "before", "first": ["z", SELF], "then": "y"},
    "before.first, negated": {"type": "before", "first": INSIDE, "then": "y"},
    "immediately_before.first": {"type": "immediately_before", "first": SELF, "then": "y"},
    "after.then": {"type": "after", "trigger": "y", "then": SELF},
    "eventually.tool": {"type": "eventually", "tool": SELF, "within": 2},
    "require.tool": {"type": "require", "tool": SELF},
    "never_after.trigger": {"type": "never_after", "trigger": SELF, "forbidden": "y"},
    "forbids_after.tool": {"type": "forbids_after", "tool": SELF, "tools": ["y"]},
    "sequence.tools": {"type": "sequence", "tools": ["y", SELF]},
    "forbidden_sequence.sequence": {"type": "forbidden_sequence", "sequence": [SELF, "y"]},
    "provenance.from": {"type": "provenance", "tool": "y", "path": "$.a", "from": [{"tool": SELF, "path": "$.a"}]},
}
JUDGED: dict[str, dict[str, Any]] = {
    "before.then": {"type": "before", "first": "y", "then": SELF},
    "after.trigger": {"type": "after", "trigger": SELF, "then": "y"},
    "never_after.forbidden": {"type": "never_after", "trigger": "y", "forbidden": SELF},
    "forbids_after.tools": {"type": "forbids_after", "tool": "y", "tools": [SELF]},
    "forbidden_sequence's last": {"type": "forbidden_sequence", "sequence": ["y", SELF]},
    "blocklist.tools": {"type": "blocklist", "tools": [SELF]},
    "count.tool": {"type": "count", "tool": SELF, "max": 1},
    "precondition.tool": {"type": "precondition", "tool": SELF, "requires": [{"turns_gte": 1}]},
    "prior's where": {"type": "precondition", "tool": "y", "requires": [{"prior": SELF}]},
}


@pytest.mark.parametrize("rule", NOT_JUDGED.values(), ids=NOT_JUDGED)
def test_a_reference_to_the_judged_call_where_none_is_judged_is_an_error(rule: dict[str, Any]) -> None:
    """It would compare the call with itself, and the rule would pass; the error stands at its rule."""
    with pytest.raises(PolicyError, match="no call is being judged") as raised:
        parse_policies({"name": "p", "rules": [rule]})

    assert raised.value.problems[0].path.startswith("rules[0]")


@pytest.mark.parametrize("rule", JUDGED.values(), ids=JUDGED)
def test_the_judged_calls_own_selector_may_refer_to_it(rule: dict[str, Any]) -> None:
    """Section 4: `output`, a prior's `where`, and the judged call's own selector."""
    assert parse_policies({"name": "p", "rules": [rule]})


@pytest.mark.parametrize("rule", RULE_EXAMPLES, ids=lambda rule: rule["type"])
@pytest.mark.parametrize(
    ("field", "wrong"),
    [("when", [{"path": "$.tenant", "equals": {"arg": "$.t"}}]), ("key", "$.a[")],
    ids=["when", "key"],
)
def test_what_every_rule_may_carry_is_checked_on_each(rule: dict[str, Any], field: str, wrong: Any) -> None:
    """Whatever else its family checks."""
    with pytest.raises(PolicyError) as raised:
        parse_policies({"name": "p", "rules": [rule | {field: wrong}]})

    assert any(problem.path.startswith(f"rules[0].{field}") for problem in raised.value.problems)


BAD: dict[str, Any] = {"tool": "x", "where": [{"path": "$.a[", "exists": True}]}
NO_TOOLS: dict[str, tuple[dict[str, Any], str]] = {
    "count": ({"rules": [{"type": "count", "tool": [], "max": 1}]}, "rules[0].tool"),
    "loop": ({"rules": [{"type": "loop", "tool": [], "window": 2, "threshold": 2}]}, "rules[0].tool"),
    "count's path": ({"rules": [{"type": "count", "tool": BAD, "max": 1}]}, "rules[0].tool"),
    "blocklist's path": ({"rules": [{"type": "blocklist", "tools": [BAD]}]}, "rules[0].tools"),
    "a transition's path": (
        {"nets": [{"name": "n", "places": ["a"], "transitions": [{"name": "t", "tools": [BAD]}]}]},
        "nets[0].transitions[0].tools",
    ),
    "max_calls": ({"rules": [{"type": "max_calls", "tool": [], "max": 1}]}, "rules[0].tool"),
    "any_of": (
        {"rules": [{"type": "precondition", "tool": "x", "requires": [{"any_of": []}]}]},
        "rules[0].requires[0].any_of",
    ),
    "a transition": (
        {"nets": [{"name": "n", "places": ["a"], "transitions": [{"name": "t", "tools": [{"tool": []}]}]}]},
        "nets[0].transitions[0].tools",
    ),
}


@pytest.mark.parametrize(("document", "where"), NO_TOOLS.values(), ids=NO_TOOLS)
def test_what_names_no_tool_or_no_path_is_an_error_where_it_stands(document: dict[str, Any], where: str) -> None:
    """By the field, not by the rule."""
    with pytest.raises(PolicyError) as raised:
        parse_policies({"name": "p", **document})

    assert {problem.path.removeprefix(where)[:1] for problem in raised.value.problems} <= {"", "[", "."}
