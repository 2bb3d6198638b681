"""Other policies can't weaken a locked one by prices, names or texts, and each attempt is listed."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from proctor.policies import PolicyError, RunContext, compile_policy, merge_policies, parse_policies, preflight
from proctor.policies.events.calls import STRICTNESS
from proctor.policies.limits import BUDGETS, Budget, Limit, Limits
from proctor.policies.monitor.usage import PriceBook
from proctor.policies.policy import Approval, Policy, Price, Stack
from proctor.policies.rules import RULES
from proctor.policies.stack.clauses import clauses_of
from proctor.policies.stack.locks import loosened
from proctor.policies.stack.merge import effective_budgets, effective_limits, price_tables

CAP: dict[str, Any] = {"locked": True, "limits": {"max_cost_usd": 2}}
KNOWN = "claude-sonnet-4-5"
"""A model with a public price: 3 USD per million tokens."""


def stack(**policies: dict[str, Any]) -> Policy:
    return merge_policies([p for name, fields in policies.items() for p in parse_policies({"name": name, **fields})])


def usd(policy: Policy, model: str) -> float | None:
    """The price of a million input tokens of a model under a policy, in ten reports."""
    source = PriceBook(price_tables(policy)).source(model)
    return None if source is None else round(10 * source.usd((100_000, 0, 0, 0, 0)), 6)


def price(input: float) -> dict[str, float]:
    """A price for tokens of any kind."""
    return {"input_usd_per_mtok": input, "output_usd_per_mtok": input}


def priced(most: float, model: str, **more: Any) -> dict[str, Any]:
    """A locked cost limit, with a price of its own."""
    return {**CAP, "prices": {model: price(most)}, **more}


def team(cost: float, model: str) -> dict[str, Any]:
    return {"prices": {model: price(cost)}}


@pytest.mark.parametrize(("policies", "model", "cost"), [
    *(({"org": CAP, "team": team(0, name)}, KNOWN, 3) for name in ("*", KNOWN, "CLAUDE-*")),
    *(({"team": team(0, name), "org": CAP}, KNOWN, 3) for name in ("*", KNOWN, "CLAUDE-*")),
    ({"org": CAP, "team": team(9, "*")}, KNOWN, 9),
    ({"org": CAP, "team": team(1, "ours")}, "ours", 1),
    ({"org": {**CAP, "unpriced": "reject"}, "team": team(0, "ours")}, "ours", None),
    ({"org": priced(1, "ours", unpriced="reject"), "team": team(0, "ours")}, "ours", 1),
    ({"a": priced(9, "m*"), "b": priced(1, "m1")}, "m1", 9),
    ({"b": priced(1, "m1"), "a": priced(9, "m*")}, "m1", 9),
    ({"org": priced(1, KNOWN)}, KNOWN, 1),
    ({"a": team(9, KNOWN), "b": team(0, KNOWN)}, KNOWN, 0),
])  # fmt: skip
def test_a_locked_cost_limit_is_not_weakened_by_prices_of_others(
    policies: dict[str, Any], model: str, cost: float | None
) -> None:
    """Public prices are the minimum, wherever the other policy stands. A higher price counts.

    A model without a price may get one, unless the limit rejects such models. Of locked prices the highest counts; a
    locked policy's own may be below the public one. Without a lock, the later price replaces the earlier.
    """
    assert usd(stack(**policies), model) == cost


CALLS: dict[str, Any] = {"max": 7, "scope": "session", "action": "deny"}
ORG: dict[str, Any] = {
    "locked": True,
    "on_violation": "deny",
    "enforcement": "required",
    "unpriced": "reject",
    "approval": {"timeout_s": 60, "on_timeout": "cancel"},
    "prices": {"m": price(3)},
    "limits": {
        "max_cost_usd": 2,
        "max_turns": {"max": 5, "action": "deny"},
        "max_tool_calls": {**CALLS, "warn_at": 0.5},
    },
    "tool_rules": [{"deny": ["bash", "danger"]}],
    "rules": [{"type": "before", "first": "Identify", "then": {"tool": "pay"}}],
    "nets": ['map shell.command "rm" as remove', "block remove"],
}


@pytest.mark.parametrize(("clause", "name", "given", "holds"), [
    ({"on_violation": "warn"}, "on_violation", "warn", "deny"),
    ({"enforcement": "best_effort"}, "enforcement", "best_effort", "required"),
    ({"unpriced": "warn"}, "unpriced", "warn", "reject"),
    ({"approval": {"timeout_s": 3600, "on_timeout": "cancel"}}, "approval.timeout_s", "3,600", "60"),
    ({"approval": {"timeout_s": 30}}, "approval.on_timeout", "deny", "cancel"),
    ({"prices": {"m": price(0)}}, "prices.m", "0 and 0 USD per million tokens", "3 and 3 USD per million tokens"),
    ({"prices": {"*": price(1)}}, "prices.*", "1 and 1 USD per million tokens", "3 and 3 USD per million tokens"),
    ({"prices": {"x": price(9)}}, "prices.x", "9 and 9 USD per million tokens",
        "the public price where that is higher"),
    ({"limits": {"max_cost_usd": 9}}, "max_cost_usd", "9", "2"),
    ({"limits": {"max_turns": {"max": 5, "action": "warn"}}}, "max_turns.action", "warn", "deny"),
    ({"limits": {"max_tool_calls": 7}, "on_violation": "deny"}, "max_tool_calls.scope", "run", "session"),
    ({"limits": {"max_tool_calls": CALLS}}, "max_tool_calls.warn_at", "none", "0.5"),
    ({"limits": {"max_tool_calls": {**CALLS, "warn_at": 0.9}}}, "max_tool_calls.warn_at", "0.9", "0.5"),
    ({"aliases": {"BASH": ["nothing"]}}, "aliases.BASH", "nothing", "what it means in its own policy"),
    ({"aliases": {"identify": ["ls"]}}, "aliases.identify", "ls", "what it means in its own policy"),
    ({"virtual_tools": [{"tool": "x", "path": "$", "match": "y", "as": "pay"}]}, "virtual_tools.pay", "x",
        "what it means in its own policy"),
    ({"nets": ["map ls.path x as remove"]}, "virtual_tools.remove", "ls", "what it means in its own policy"),
])  # fmt: skip
def test_an_attempt_to_weaken_is_listed_and_reported(
    clause: dict[str, Any], name: str, given: str, holds: str
) -> None:
    """With the policy that made it, and the value that applies instead."""
    merged = stack(org=ORG, team=clause)

    assert [(a.policy, a.name, a.given, a.locked_policy, a.holds) for a in loosened(merged)] == [
        ("team", name, given, "org", holds)
    ]
    assert [(f.policy, f.rule) for f in preflight(merged) if f.code.startswith("loosened")] == [("team", name)]
    assert preflight(merged).refusals == ()
    if "limits" in clause:  # only a later definition can be an attempt
        assert loosened(stack(team=clause, org=ORG)) == []


@pytest.mark.parametrize("clause", [
    {"on_violation": "cancel", "enforcement": "required", "approval": {"timeout_s": 9, "on_timeout": "cancel"}},
    {"prices": {"m": price(3)}, "limits": {"max_turns": 4, "max_cost_usd": 1}},
    {"aliases": {"Own": ["bash"]}, "limits": {"max_turns": {"max": 3, "action": "warn"}}},
    {"locked": True, "on_violation": "warn"},
])  # fmt: skip
def test_a_stricter_or_unrelated_definition_is_no_attempt(clause: dict[str, Any]) -> None:
    assert loosened(stack(org=ORG, team=clause)) == []


def both_of(locked: dict[str, Any], later: dict[str, Any]) -> Stack:
    """A locked policy, and a later one of the same name, which is the harder case."""
    (org,) = parse_policies({"name": "org", "locked": True, **locked})
    (team,) = parse_policies({"name": "org", **later})
    return merge_policies([org, team])


def limit(locked: Any, later: Any) -> list[Limit]:
    """The limit that applies to `max_turns`."""
    found = effective_limits(both_of({"limits": {"max_turns": locked}}, {"limits": {"max_turns": later}}))
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
"""For each field of a limit: whether the locked one applies, or both apply."""

HELD: dict[str, Any] = {"name": "b", "max_cost_usd": 10, "reserve": 5, "warn_at": [0.5], "action": "cancel"}
TEXTS = {"reason": "ours", "tell_model": "ours", "description": "ours"}


def budget(locked: dict[str, Any], later: dict[str, Any]) -> tuple[Budget, str]:
    """The one budget that results from two, and its action."""
    merged = both_of({"budgets": [{**HELD, **locked}]}, {"budgets": [{"name": "b", "max_cost_usd": 10, **later}]})
    (entry,) = effective_budgets(merged)
    (claim,) = compile_policy(merged).monitor(RunContext()).budgets
    assert (claim.max, claim.reserve, claim.warn_at) == (
        entry.budget.max,
        entry.budget.reserve,
        entry.budget.fractions,
    )
    return entry.budget, entry.action


def amount(kind: str) -> bool:
    """Whether the smaller amount applies."""
    (entry,) = effective_budgets(
        both_of({"budgets": [{"name": "b", kind: 5}]}, {"budgets": [{"name": "b", kind: 50}]})
    )
    return entry.budget.max == 5


def both_hold(**other: Any) -> bool:
    """Whether a budget with its own account applies beside the locked one."""
    merged = both_of({"budgets": [HELD]}, {"budgets": [{"name": "b", "max_cost_usd": 99, **other}]})
    held, *others = effective_budgets(merged)
    return held.budget == parse_policies({"name": "o", "budgets": [HELD]})[0].budgets[0] and len(others) == 1


def conflict(**other: Any) -> bool:
    """Whether a budget of the same name that counts differently is an error."""
    with pytest.raises(PolicyError, match="give one of them another name"):
        both_of({"budgets": [HELD]}, {"budgets": [{"name": "b", **other}]})
    return True


BUDGET: dict[str, Callable[[], bool]] = {
    "name": lambda: len(effective_budgets(both_of({"budgets": [HELD]}, {"budgets": [{**HELD, "name": "c"}]}))) == 2,
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
"""The same for a shared budget."""


def approval(locked: dict[str, Any], later: dict[str, Any]) -> Approval:
    """The `approval` that applies."""
    merged = both_of({"approval": locked}, {"approval": later}).approval
    assert merged is not None
    return merged


APPROVAL: dict[str, Callable[[], bool]] = {
    "timeout_s": lambda: approval({"timeout_s": 60}, {"timeout_s": 900}).timeout_s == 60,
    "on_timeout": lambda: approval({"on_timeout": "cancel"}, {"on_timeout": "deny"}).on_timeout == "cancel",
    "approvers": lambda: approval({"approvers": ["ana"]}, {"approvers": ["ana", "eve"]}).approvers == ("ana",),
    "four_eyes": lambda: approval({"four_eyes": True}, {"four_eyes": False}).four_eyes,
    "scope": lambda: approval({"scope": "once"}, {"scope": "session"}).scope == "once",
}
"""The same for approvals."""


def rate(name: str) -> bool:
    """Whether the locked price stays when a later policy prices the same model."""
    full = dict.fromkeys(Price.__struct_fields__, 5)
    merged = both_of({"prices": {"m": full}}, {"prices": {"m": {**full, name: 1}}})
    [(locked, _)] = price_tables(merged).locked
    return bool(getattr(locked["m"], name) == 5 and getattr(merged.prices["m"], name) == 5)


PRICE: dict[str, Callable[[], bool]] = {name: (lambda name=name: rate(name)) for name in Price.__struct_fields__}  # type: ignore[misc]


def kept(field: str, clause: Any) -> bool:
    """Whether a clause of the locked policy is evaluated as written, beside a later one with the same id."""
    own = clauses_of(merge_policies([*parse_policies({"name": "org", "locked": True, field: [clause]})]))
    merged = both_of({field: [clause]}, {field: [clause], "on_violation": "warn"})
    found = [c for c in clauses_of(merged) if c.member == 0]
    return [c.record for c in found] == [c.record for c in own] and all(
        STRICTNESS[after.action] >= STRICTNESS[before.action] for before, after in zip(own, found, strict=True)
    )


def scoped(later: dict[str, Any]) -> bool:
    """Whether names of another policy do not apply to the locked policy's clauses."""
    merged = both_of({"tool_rules": [{"deny": ["danger"]}]}, later)
    (clause,) = (c for c in clauses_of(merged) if c.member == 0)
    return clause.patterns("danger") == ("danger",) and not clause.scope.virtual_names


NET = {"name": "n", "places": ["p"], "transitions": [{"name": "t", "inputs": ["p"], "tools": ["x"]}]}
POLICY: dict[str, Callable[[], bool]] = {
    "name": lambda: merge_policies([Policy(name="a", locked=True), Policy(name="b")]).members[0].name == "a",
    "version": lambda: True,  # only one version exists
    "description": lambda: both_of({"description": "ours"}, {"description": "-"}).members[0].description == "ours",
    "on_violation": lambda: both_of({"on_violation": "cancel"}, {"on_violation": "warn"}).on_violation == "cancel",
    "locked": lambda: both_of({}, {"locked": False}).members[0].locked,
    "enforcement": lambda: (
        both_of({"enforcement": "required"}, {"enforcement": "best_effort"}).enforcement == "required"
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
    "unpriced": lambda: both_of({"unpriced": "reject"}, {"unpriced": "warn"}).unpriced == "reject",
    "metadata": lambda: both_of({"metadata": {"a": 1}}, {"metadata": {"a": 2}}).members[0].metadata == {"a": 1},
}
"""The same for a policy. Fields that decide nothing are kept as the policy has them."""


def locked_limit(name: str) -> bool:
    """Whether a limit of this kind is a maximum."""
    (entry,) = effective_limits(both_of({"limits": {name: 5}}, {"limits": {name: 9}}))
    return entry.limit.max == 5


ANSWERS: list[tuple[type[msgspec.Struct], dict[str, Callable[[], bool]]]] = [
    (Policy, POLICY),
    (Limit, LIMIT),
    (Budget, BUDGET),
    (Approval, APPROVAL),
    (Price, PRICE),
]


@pytest.mark.parametrize("record", [record for record, _ in ANSWERS])
def test_every_field_of_a_locked_clause_is_covered(record: type[msgspec.Struct]) -> None:
    """A new field needs an entry."""
    answers = next(answers for each, answers in ANSWERS if each is record)

    assert set(answers) == set(record.__struct_fields__)


@pytest.mark.parametrize(
    ("record", "field"), [(record.__name__, field) for record, answers in ANSWERS for field in answers]
)
def test_a_later_policy_does_not_weaken_a_locked_field(record: str, field: str) -> None:
    """For each field, the strictest value applies, or both."""
    answers = next(answers for each, answers in ANSWERS if each.__name__ == record)

    assert answers[field]()


@pytest.mark.parametrize("family", RULES.values(), ids=list(RULES))
def test_rules_are_added_and_never_replaced(family: type[msgspec.Struct]) -> None:
    """Each rule keeps its record, whatever ids a later policy uses."""
    needed = {f.encode_name for f in msgspec.structs.fields(family) if f.required}
    values: dict[str, Any] = {"tools": ["a", "b"], "sequence": ["a", "b"], "requires": [{"prior": "a"}], "max": 1}
    values |= {"within": 2, "path": "$.p", "from": ["user_message"], "window": 3, "threshold": 2, "then": "y"}
    written = {name: values.get(name, "x") for name in needed}
    if str(family.__struct_config__.tag) in ("count", "circuit_breaker"):
        written |= {"max": 1} if "max" in family.__struct_fields__ else {"total": 3}

    assert kept("rules", {"type": str(family.__struct_config__.tag), "id": "r", **written})


def test_a_later_budget_with_a_larger_amount_and_reserve_is_rejected() -> None:
    """A later policy of the same name has another amount and almost no reserve."""
    merged = both_of(
        {"budgets": [{"name": "b", "max_cost_usd": 10, "reserve": 5}]},
        {"budgets": [{"name": "b", "max_cost_usd": 9.99, "reserve": 0.01, "action": "warn"}]},
    )
    (claim,) = compile_policy(merged).monitor(RunContext()).budgets

    assert (claim.max, claim.reserve, claim.action) == (9.99, 5, "cancel")
    assert [(a.name, a.given, a.holds) for a in loosened(merged)] == [
        ("budgets.b.reserve", "0.01", "5"),
        ("budgets.b.action", "warn", "cancel"),
    ]


@pytest.mark.parametrize("later", [
    {"max_cost_usd": 9, "reserve": 0.01, "key": '$.tenant="t"'},
    {"max_cost_usd": 9, "reserve": 0.01, "per": "$.tenant", "when": [{"path": "$.tenant", "exists": True}]},
])  # fmt: skip
def test_two_entries_for_one_account_apply_as_the_strictest_of_both(later: dict[str, Any]) -> None:
    """If another key or another `when` leads to the same account, it is the same budget."""
    merged = both_of(
        {"budgets": [{"name": "b", "max_cost_usd": 10, "reserve": 5, "per": "$.tenant"}]},
        {"budgets": [{"name": "b", **later}]},
    )
    (claim,) = compile_policy(merged).monitor(RunContext(tenant="t")).budgets

    assert (claim.max, claim.reserve) == (9, 5)
