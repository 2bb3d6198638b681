"""A locked policy is not loosened by what others define: prices, names, words; each attempt is listed."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.policies import Policy, merge_policies, parse_policies, preflight
from proctor.policies.events import TokenUsageUpdated
from proctor.policies.monitor.usage import PriceBook
from proctor.policies.stack.locks import loosened
from proctor.policies.stack.merge import price_tables

CAP: dict[str, Any] = {"locked": True, "limits": {"max_cost_usd": 2}}
KNOWN = "claude-sonnet-4-5"
"""A model with a public price: 3 USD per million tokens."""


def stack(**policies: dict[str, Any]) -> Policy:
    """A stack of policies, by name."""
    return merge_policies([p for name, fields in policies.items() for p in parse_policies({"name": name, **fields})])


def usd(policy: Policy, model: str) -> float | None:
    """What a million input tokens of a model cost under a policy, in reports of a tenth of that."""
    source = PriceBook(price_tables(policy)).source(model)
    return None if source is None else round(10 * source.usd(TokenUsageUpdated(input_tokens=100_000)), 6)


def price(input: float) -> dict[str, float]:
    """A price for tokens of any kind."""
    return {"input_usd_per_mtok": input, "output_usd_per_mtok": input}


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("name", ["*", KNOWN, "CLAUDE-*"])
def test_a_price_of_nothing_does_not_void_a_locked_cap(name: str, first: bool) -> None:
    """What the locked policy counts by public prices is counted so at the least, wherever the other one stands."""
    team = {"prices": {name: price(0)}}
    policies = {"team": team, "org": CAP} if first else {"org": CAP, "team": team}

    assert usd(stack(**policies), KNOWN) == 3


def test_a_dearer_price_counts() -> None:
    """A policy may only tighten a locked one, and this tightens."""
    assert usd(stack(org=CAP, team={"prices": {"*": price(9)}}), KNOWN) == 9


def test_a_model_nobody_else_prices_may_be_given_a_price() -> None:
    """Without it the cap would count nothing at all."""
    assert usd(stack(org=CAP, team={"prices": {"ours": price(1)}}), "ours") == 1


def test_a_model_that_a_locked_cap_rejects_is_not_priced_by_others() -> None:
    """`unpriced: reject` means what the locked policy itself, or the public data, can price."""
    org = {**CAP, "unpriced": "reject"}

    assert usd(stack(org=org, team={"prices": {"ours": price(0)}}), "ours") is None
    assert usd(stack(org={**org, "prices": {"ours": price(1)}}, team={"prices": {"ours": price(0)}}), "ours") == 1


def test_of_locked_prices_the_dearest_counts() -> None:
    """So that a locked policy more never makes tokens cheaper, under whatever name the model goes."""
    dear, cheap = {**CAP, "prices": {"m*": price(9)}}, {**CAP, "prices": {"m1": price(1)}}

    assert usd(stack(a=dear, b=cheap), "m1") == usd(stack(b=cheap, a=dear), "m1") == 9


def test_what_a_locked_policy_pays_is_its_to_say() -> None:
    """Its own price, lower than the public one, is what it counts its own cap by."""
    assert usd(stack(org={**CAP, "prices": {KNOWN: price(1)}}), KNOWN) == 1


def test_without_a_locked_policy_a_later_price_replaces_an_earlier_one() -> None:
    """As any value of a stack does."""
    assert usd(stack(a={"prices": {KNOWN: price(9)}}, b={"prices": {KNOWN: price(0)}}), KNOWN) == 0


ORG: dict[str, Any] = {
    "locked": True,
    "on_violation": "deny",
    "enforcement": "required",
    "unpriced": "reject",
    "approval": {"timeout_s": 60, "on_timeout": "cancel"},
    "prices": {"m": price(3)},
    "limits": {"max_cost_usd": 2, "max_turns": {"max": 5, "action": "deny"}},
    "tool_rules": [{"deny": ["bash", "danger"]}],
    "rules": [{"type": "before", "first": "Identify", "then": {"tool": "pay"}}],
    "nets": ['map shell.command "rm" as remove', "block remove"],
}


@pytest.mark.parametrize(
    ("clause", "name", "given", "holds"),
    [
        ({"on_violation": "warn"}, "on_violation", "warn", "deny"),
        ({"enforcement": "best_effort"}, "enforcement", "best_effort", "required"),
        ({"unpriced": "warn"}, "unpriced", "warn", "reject"),
        ({"approval": {"timeout_s": 3600, "on_timeout": "cancel"}}, "approval.timeout_s", "3,600", "60"),
        ({"approval": {"timeout_s": 30}}, "approval.on_timeout", "deny", "cancel"),
        ({"prices": {"m": price(0)}}, "prices.m", "0 and 0 USD per million tokens", "3 and 3 USD per million tokens"),
        ({"prices": {"*": price(1)}}, "prices.*", "1 and 1 USD per million tokens", "3 and 3 USD per million tokens"),
        (
            {"prices": {"x": price(9)}},
            "prices.x",
            "9 and 9 USD per million tokens",
            "the public price where that is higher",
        ),
        ({"limits": {"max_cost_usd": 9}}, "max_cost_usd", "9", "2"),
        ({"limits": {"max_turns": {"max": 5, "action": "warn"}}}, "max_turns", "5", "5"),
        ({"aliases": {"BASH": ["nothing"]}}, "aliases.BASH", "nothing", "what it means in its own policy"),
        ({"aliases": {"identify": ["ls"]}}, "aliases.identify", "ls", "what it means in its own policy"),
        (
            {"virtual_tools": [{"tool": "x", "path": "$", "match": "y", "as": "pay"}]},
            "virtual_tools.pay",
            "x",
            "what it means in its own policy",
        ),
        ({"nets": ["map ls.path x as remove"]}, "virtual_tools.remove", "ls", "what it means in its own policy"),
    ],
)
def test_an_attempt_to_loosen_is_listed_and_reported(
    clause: dict[str, Any], name: str, given: str, holds: str
) -> None:
    """Who said what, and what holds in its place."""
    merged = stack(org=ORG, team=clause)

    assert [(a.policy, a.name, a.given, a.locked_policy, a.holds) for a in loosened(merged)] == [
        ("team", name, given, "org", holds)
    ]
    assert [(f.policy, f.rule) for f in preflight(merged) if f.code.startswith("loosened")] == [("team", name)]


@pytest.mark.parametrize(
    "clause",
    [
        {"on_violation": "cancel", "enforcement": "required", "approval": {"timeout_s": 9, "on_timeout": "cancel"}},
        {"prices": {"m": price(3)}, "limits": {"max_turns": 4, "max_cost_usd": 1}},
        {"aliases": {"Own": ["bash"]}, "limits": {"max_turns": {"max": 3, "action": "warn"}}},
        {"locked": True, "on_violation": "warn"},
    ],
)
def test_what_tightens_or_speaks_of_something_else_is_no_attempt(clause: dict[str, Any]) -> None:
    """A finding is worth reading."""
    assert loosened(stack(org=ORG, team=clause)) == []
