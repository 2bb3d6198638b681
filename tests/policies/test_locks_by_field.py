"""Every field of every clause of a locked policy: a later policy cannot weaken it, and no field is left out here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from proctor.policies import (
    Approval,
    Budget,
    Limit,
    Limits,
    Policy,
    PolicyError,
    Price,
    RunContext,
    Stack,
    compile_policy,
    loosened,
    merge_policies,
)
from proctor.policies.events.calls import STRICTNESS
from proctor.policies.limits import BUDGETS
from proctor.policies.reading import parse_policies
from proctor.policies.rules import RULES
from proctor.policies.stack.clauses import clauses_of
from proctor.policies.stack.merge import effective_budgets, effective_limits, price_tables

Read = Callable[[Stack], Any]


def stack(locked: dict[str, Any], later: dict[str, Any]) -> Stack:
    """A locked policy, and a later one of the same name, which is the harder case."""
    (org,) = parse_policies({"name": "org", "locked": True, **locked})
    (team,) = parse_policies({"name": "org", **later})
    return merge_policies([org, team])


def limit(locked: Any, later: Any) -> list[Limit]:
    """What holds of `max_turns`."""
    found = effective_limits(stack({"limits": {"max_turns": locked}}, {"limits": {"max_turns": later}}))
    return [msgspec.structs.replace(entry.limit, action=entry.action) for entry in found]


LIMIT: dict[str, Callable[[], bool]] = {
    "max": lambda: [each.max for each in limit(5, 9)] == [5],
    "scope": lambda: {each.scope for each in limit({"max": 5, "scope": "session"}, {"max": 4})} == {"session", "run"},
    "warn_at": lambda: [each.warn_at for each in limit({"max": 5, "warn_at": 0.5}, 4)] == [0.5, None],
    "action": lambda: [each.action for each in limit(5, {"max": 4, "action": "warn"})] == ["cancel", "warn"],
    "reason": lambda: (
        [each.reason for each in limit({"max": 5, "reason": "ours"}, {"max": 5, "reason": "-"})] == ["ours"]
    ),
    "tell_model": lambda: [e.tell_model for e in limit({"max": 5, "tell_model": "ours"}, {"max": 5})] == ["ours"],
    "description": lambda: [e.description for e in limit({"max": 5, "description": "ours"}, {"max": 5})] == ["ours"],
}
"""For each field of a limit whether the locked one's holds, or holds beside the other's."""

HELD: dict[str, Any] = {"name": "b", "max_cost_usd": 10, "reserve": 5, "warn_at": [0.5], "action": "cancel"}
TEXTS = {"reason": "ours", "tell_model": "ours", "description": "ours"}


def budget(locked: dict[str, Any], later: dict[str, Any]) -> tuple[Budget, str]:
    """The one budget that comes of two, and its action."""
    merged = stack({"budgets": [{**HELD, **locked}]}, {"budgets": [{"name": "b", "max_cost_usd": 10, **later}]})
    (entry,) = effective_budgets(merged)
    (claim,) = compile_policy(merged).monitor(RunContext()).budgets
    assert (claim.max, claim.reserve, claim.warn_at) == (
        entry.budget.max,
        entry.budget.reserve,
        entry.budget.fractions,
    )
    return entry.budget, entry.action


def amount(kind: str) -> bool:
    """Whether the smaller amount of a kind holds."""
    (entry,) = effective_budgets(stack({"budgets": [{"name": "b", kind: 5}]}, {"budgets": [{"name": "b", kind: 50}]}))
    return entry.budget.max == 5


def both_hold(**other: Any) -> bool:
    """Whether a budget that is kept apart in another way stands beside the locked one."""
    merged = stack({"budgets": [HELD]}, {"budgets": [{"name": "b", "max_cost_usd": 99, **other}]})
    held, *others = effective_budgets(merged)
    return held.budget == parse_policies({"name": "o", "budgets": [HELD]})[0].budgets[0] and len(others) == 1


def conflict(**other: Any) -> bool:
    """Whether a budget of the same names that counts otherwise is an error."""
    with pytest.raises(PolicyError, match="give one of them another name"):
        stack({"budgets": [HELD]}, {"budgets": [{"name": "b", **other}]})
    return True


BUDGET: dict[str, Callable[[], bool]] = {
    "name": lambda: len(effective_budgets(stack({"budgets": [HELD]}, {"budgets": [{**HELD, "name": "c"}]}))) == 2,
    **{kind: (lambda kind=kind: amount(kind)) for kind in BUDGETS},  # type: ignore[misc]
    "per": lambda: both_hold(per="$.tenant"),
    "key": lambda: both_hold(key="k"),
    "window": lambda: conflict(max_cost_usd=99, window="day"),
    "reserve": lambda: budget({}, {"max_cost_usd": 9.99, "reserve": 0.01})[0].reserve == 5,
    "warn_at": lambda: budget({}, {"max_cost_usd": 9, "warn_at": 0.9})[0].fractions == (0.5, 0.9),
    "action": lambda: budget({}, {"max_cost_usd": 9, "action": "warn"})[1] == "cancel",
    "reason": lambda: budget(TEXTS, {"max_cost_usd": 9, "reason": "-"})[0].reason == "ours",
    "tell_model": lambda: budget(TEXTS, {"max_cost_usd": 9, "tell_model": "-"})[0].tell_model == "ours",
    "description": lambda: budget(TEXTS, {"max_cost_usd": 9, "description": "-"})[0].description == "ours",
    "when": lambda: both_hold(when=[{"path": "$.tenant", "equals": "x"}]),
    "allowance": lambda: all(
        budget({"allowance": 20}, {"max_cost_usd": part, "allowance": 400})[0].max == HELD["max_cost_usd"]
        for part in (99, "50%")
    ),
}
"""The same of a shared budget."""


def approval(locked: dict[str, Any], later: dict[str, Any]) -> Approval:
    """What holds of `approval`."""
    merged = stack({"approval": locked}, {"approval": later}).approval
    assert merged is not None
    return merged


APPROVAL: dict[str, Callable[[], bool]] = {
    "timeout_s": lambda: approval({"timeout_s": 60}, {"timeout_s": 900}).timeout_s == 60,
    "on_timeout": lambda: approval({"on_timeout": "cancel"}, {"on_timeout": "deny"}).on_timeout == "cancel",
    "approvers": lambda: approval({"approvers": ["ana"]}, {"approvers": ["ana", "eve"]}).approvers == ("ana",),
    "four_eyes": lambda: approval({"four_eyes": True}, {"four_eyes": False}).four_eyes,
    "scope": lambda: approval({"scope": "once"}, {"scope": "session"}).scope == "once",
}
"""The same of approvals."""


def rate(name: str) -> bool:
    """Whether a rate that a later policy gives for the same model leaves the locked one's."""
    full = dict.fromkeys(Price.__struct_fields__, 5)
    merged = stack({"prices": {"m": full}}, {"prices": {"m": {**full, name: 1}}})
    tables = price_tables(merged)
    return bool(getattr(tables.locked[0].prices["m"], name) == 5 and getattr(merged.prices["m"], name) == 5)


PRICE: dict[str, Callable[[], bool]] = {name: (lambda name=name: rate(name)) for name in Price.__struct_fields__}  # type: ignore[misc]


def kept(field: str, clause: Any) -> bool:
    """Whether a clause of the locked policy judges as written, whatever one of the same id says after it."""
    own = clauses_of(merge_policies([*parse_policies({"name": "org", "locked": True, field: [clause]})]))
    merged = stack({field: [clause]}, {field: [clause], "on_violation": "warn"})
    found = [c for c in clauses_of(merged) if c.member == 0]
    return [c.record for c in found] == [c.record for c in own] and all(
        STRICTNESS[after.action] >= STRICTNESS[before.action] for before, after in zip(own, found, strict=True)
    )


def scoped(later: dict[str, Any]) -> bool:
    """Whether the names of another policy mean nothing to the locked one's clauses."""
    merged = stack({"tool_rules": [{"deny": ["danger"]}]}, later)
    (clause,) = (c for c in clauses_of(merged) if c.member == 0)
    return clause.patterns("danger") == ("danger",) and not clause.scope.virtual_names


NET = {"name": "n", "places": ["p"], "transitions": [{"name": "t", "inputs": ["p"], "tools": ["x"]}]}
POLICY: dict[str, Callable[[], bool]] = {
    "name": lambda: merge_policies([Policy(name="a", locked=True), Policy(name="b")]).members[0].name == "a",
    "version": lambda: True,  # there is one version
    "description": lambda: stack({"description": "ours"}, {"description": "-"}).members[0].description == "ours",
    "on_violation": lambda: stack({"on_violation": "cancel"}, {"on_violation": "warn"}).on_violation == "cancel",
    "locked": lambda: stack({}, {"locked": False}).members[0].locked,
    "enforcement": lambda: (
        stack({"enforcement": "required"}, {"enforcement": "best_effort"}).enforcement == "required"
    ),
    "limits": lambda: all(locked_limit(name) for name in Limits.__struct_fields__),
    "budgets": lambda: all(holds() for holds in BUDGET.values()),
    "tool_rules": lambda: kept("tool_rules", {"deny": ["x"]}) and kept("tool_rules", {"allow": ["x"]}),
    "rules": lambda: kept("rules", {"type": "never_after", "trigger": "a", "forbidden": "b", "id": "r"}),
    "nets": lambda: kept("nets", "block rm") and kept("nets", NET),
    "virtual_tools": lambda: scoped({"virtual_tools": [{"tool": "x", "path": "$", "match": "y", "as": "danger"}]}),
    "aliases": lambda: scoped({"aliases": {"danger": ["nothing"]}}),
    "approval": lambda: all(holds() for holds in APPROVAL.values()),
    "prices": lambda: all(holds() for holds in PRICE.values()),
    "unpriced": lambda: stack({"unpriced": "reject"}, {"unpriced": "warn"}).unpriced == "reject",
    "metadata": lambda: stack({"metadata": {"a": 1}}, {"metadata": {"a": 2}}).members[0].metadata == {"a": 1},
}
"""The same of a policy; what judges nothing is kept as the member wrote it."""


def locked_limit(name: str) -> bool:
    """Whether a limit of a kind is a ceiling."""
    (entry,) = effective_limits(stack({"limits": {name: 5}}, {"limits": {name: 9}}))
    return entry.limit.max == 5


ANSWERS: list[tuple[type[msgspec.Struct], dict[str, Callable[[], bool]]]] = [
    (Policy, POLICY),
    (Limit, LIMIT),
    (Budget, BUDGET),
    (Approval, APPROVAL),
    (Price, PRICE),
]


@pytest.mark.parametrize("record", [record for record, _ in ANSWERS])
def test_every_field_of_a_locked_clause_has_an_answer(record: type[msgspec.Struct]) -> None:
    """So that a new field cannot be forgotten."""
    answers = next(answers for each, answers in ANSWERS if each is record)

    assert set(answers) == set(record.__struct_fields__)


@pytest.mark.parametrize(
    ("record", "field"), [(record.__name__, field) for record, answers in ANSWERS for field in answers]
)
def test_a_later_policy_does_not_weaken_a_locked_field(record: str, field: str) -> None:
    """Field by field the strictest holds, or both hold."""
    answers = next(answers for each, answers in ANSWERS if each.__name__ == record)

    assert answers[field]()


@pytest.mark.parametrize("family", RULES.values(), ids=list(RULES))
def test_rules_are_added_and_never_replaced(family: type[msgspec.Struct]) -> None:
    """Whatever a later policy calls its own: each rule keeps the record its policy wrote, field for field."""
    needed = {f.encode_name for f in msgspec.structs.fields(family) if f.required}
    values: dict[str, Any] = {"tools": ["a", "b"], "sequence": ["a", "b"], "requires": [{"prior": "a"}], "max": 1}
    values |= {"within": 2, "path": "$.p", "from": ["user_message"], "window": 3, "threshold": 2, "then": "y"}
    written = {name: values.get(name, "x") for name in needed}
    if str(family.__struct_config__.tag) in ("count", "circuit_breaker"):
        written |= {"max": 1} if "max" in family.__struct_fields__ else {"total": 3}

    assert kept("rules", {"type": str(family.__struct_config__.tag), "id": "r", **written})


def test_the_attack_that_was_found() -> None:
    """A later policy of the same names with another amount and next to no reserve."""
    merged = stack(
        {"budgets": [{"name": "b", "max_cost_usd": 10, "reserve": 5}]},
        {"budgets": [{"name": "b", "max_cost_usd": 9.99, "reserve": 0.01, "action": "warn"}]},
    )
    (claim,) = compile_policy(merged).monitor(RunContext()).budgets

    assert (claim.max, claim.reserve, claim.action) == (9.99, 5, "cancel")
    assert [(a.name, a.given, a.holds) for a in loosened(merged)] == [
        ("budgets.b.reserve", "0.01", "5"),
        ("budgets.b.action", "warn", "cancel"),
    ]


@pytest.mark.parametrize(
    "later",
    [
        {"max_cost_usd": 9, "reserve": 0.01, "key": '$.tenant="t"'},
        {"max_cost_usd": 9, "reserve": 0.01, "per": "$.tenant", "when": [{"path": "$.tenant", "exists": True}]},
    ],
)
def test_one_share_by_two_entries_is_drawn_on_as_the_strictest_of_both_says(later: dict[str, Any]) -> None:
    """Another key or another `when` that comes to the same share is the same budget."""
    merged = stack(
        {"budgets": [{"name": "b", "max_cost_usd": 10, "reserve": 5, "per": "$.tenant"}]},
        {"budgets": [{"name": "b", **later}]},
    )
    (claim,) = compile_policy(merged).monitor(RunContext(tenant="t")).budgets

    assert (claim.max, claim.reserve) == (9, 5)
