"""Attempts to weaken a locked policy, each as a record; they have no effect."""

from collections.abc import Callable, Iterator
from itertools import product

import msgspec

from ..errors import PolicyError, not_a_policy
from ..events.calls import STRICTNESS
from ..language.selectors import NameScope
from ..policy import SCOPES, Policy, Price, members_of, virtual_tools_of
from ..rules.net_shorthand import net_of
from ..rules.petri_net import Net
from ..values.amounts import figure
from ..values.globs import matcher
from .merge import caps_cost, implies, limit_action, limits_of


class IgnoredOverride(msgspec.Struct, frozen=True, kw_only=True):
    """A setting of one policy that would weaken a locked one, and has no effect on it.

    Attributes:
        name: The setting it would weaken: a limit (`max_turns`, `max_turns.action`), `on_violation`, `enforcement`,
            `unpriced`, `approval.timeout_s`, `budgets.NAME`, `prices.MODEL`, `aliases.NAME`,
            `virtual_tools.NAME`, ...
        policy: The policy that says it.
        given: The looser policy's value, as text.
        locked_policy: The policy that is locked.
        holds: The locked policy's value, as text.
    """

    name: str
    policy: str
    given: str
    locked_policy: str
    holds: str


def loosened(policy: Policy, spend: Callable[[int], None] = lambda steps: None) -> list[IgnoredOverride]:
    """Every attempt in a stack to weaken a locked policy.

    Prices and names count anywhere in the stack, everything else only after the locked policy.

    Args:
        policy: a stack, as `merge_policies` gave it.
        spend: called with how many steps a comparison takes; what it raises ends the search.

    Raises:
        PolicyError: it is not a policy.
    """
    if not isinstance(policy, Policy):
        raise PolicyError(not_a_policy(policy))
    members = members_of(policy)
    found: list[IgnoredOverride] = []
    for (n, locked), (m, other) in product(enumerate(members), repeat=2):
        if locked.locked and not other.locked:
            spend(8 * len(locked.prices) * len(other.prices) + 20)
            attempts: list[tuple[str, str, str]] = []
            if m > n:
                attempts += _limits(locked, other, policy)
                attempts += _budgets(locked, other, policy)
                attempts += _settings(locked, other)
            attempts += _prices(locked, other)
            attempts += _names(locked, other)
            found += [
                IgnoredOverride(name=name, policy=other.name, given=given, locked_policy=locked.name, holds=holds)
                for name, given, holds in attempts
            ]
    return found


def _limits(locked: Policy, other: Policy, stack: Policy) -> Iterator[tuple[str, str, str]]:
    """Limits of the same kind that the locked one stands in for."""
    ceilings = {entry.name: entry for entry in limits_of(locked, stack)}
    for entry in limits_of(other, stack):
        ceiling = ceilings.get(entry.name)
        if ceiling is None or not implies(ceiling, entry) or implies(entry, ceiling):
            continue
        given, held = entry.limit, ceiling.limit
        if given.max > held.max:
            yield entry.name, figure(given.max), figure(held.max)
        elif entry.action != ceiling.action:
            yield f"{entry.name}.action", entry.action, ceiling.action
        elif given.scope != held.scope:
            yield f"{entry.name}.scope", given.scope, held.scope
        else:
            yield (
                f"{entry.name}.warn_at",
                "none" if given.warn_at is None else f"{given.warn_at:g}",
                f"{held.warn_at:g}",
            )


def _budgets(locked: Policy, other: Policy, stack: Policy) -> Iterator[tuple[str, str, str]]:
    """Budgets of the same name for more of the same; and what they say more weakly of the very same budget."""
    kept = {budget.name: budget for budget in locked.budgets}
    for budget in other.budgets:
        held = kept.get(budget.name)
        if held is None or held.limit != budget.limit:
            continue
        where = f"budgets.{budget.name}"
        if held.max < budget.max:
            yield where, figure(budget.max), figure(held.max)
        if locked.name != other.name:
            continue  # another budget, which holds beside it
        if (budget.reserve or 0) < (held.reserve or 0):
            yield f"{where}.reserve", figure(budget.reserve or 0), figure(held.reserve or 0)
        given, strict = (limit_action(m, b.kind, b.action, stack) for m, b in ((other, budget), (locked, held)))
        if STRICTNESS[given] < STRICTNESS[strict]:
            yield f"{where}.action", given, strict


def _settings(locked: Policy, other: Policy) -> Iterator[tuple[str, str, str]]:
    """The settings that are weaker than in the locked policy."""
    strict, stated = locked.on_violation, other.on_violation
    if strict and stated and STRICTNESS[stated] < STRICTNESS[strict]:
        yield "on_violation", stated, strict
    if locked.enforcement == "required" and other.enforcement == "best_effort":
        yield "enforcement", "best_effort", "required"
    if locked.unpriced == "reject" and other.unpriced == "warn":
        yield "unpriced", "warn", "reject"
    if locked.approval and other.approval:
        if other.approval.timeout_s > locked.approval.timeout_s:
            yield "approval.timeout_s", figure(other.approval.timeout_s), figure(locked.approval.timeout_s)
        if (locked.approval.on_timeout, other.approval.on_timeout) == ("cancel", "deny"):
            yield "approval.on_timeout", "deny", "cancel"
        if SCOPES.index(other.approval.scope) > SCOPES.index(locked.approval.scope):
            yield "approval.scope", other.approval.scope, locked.approval.scope
        if locked.approval.approvers is not None and other.approval.approvers is not None:
            added = [who for who in other.approval.approvers if who not in locked.approval.approvers]
            if added:
                yield "approval.approvers", ", ".join(added), ", ".join(locked.approval.approvers)


def _prices(locked: Policy, other: Policy) -> Iterator[tuple[str, str, str]]:
    """Prices below those the locked policy states, or beside a cap of it that counts public ones."""
    for model, price in other.prices.items():
        locked_prices = [(name, held) for name, held in locked.prices.items() if _overlap(model, name)]
        cheaper = next((held for _, held in locked_prices if _cheaper(price, held)), None)
        if cheaper is not None:
            yield f"prices.{model}", _shown(price), _shown(cheaper)
        elif not locked_prices and caps_cost(locked):
            yield f"prices.{model}", _shown(price), "the public price where that is higher"


def _overlap(one: str, other: str) -> bool:
    return matcher([one])(other) or matcher([other])(one)


def _cheaper(price: Price, than: Price) -> bool:
    return any(a < b for a, b in zip(price.rates, than.rates, strict=True))


def _shown(price: Price) -> str:
    return f"{price.input_usd_per_mtok:g} and {price.output_usd_per_mtok:g} USD per million tokens"


def _names(locked: Policy, other: Policy) -> Iterator[tuple[str, str, str]]:
    """Names that another policy gives tools, where the locked policy uses the same name for something else."""
    if not (other.aliases or other.virtual_tools or other.nets):
        return
    used = _names_used(locked)
    for alias in other.aliases:
        if alias.casefold() in used:
            yield f"aliases.{alias}", ", ".join(other.aliases[alias]), "what it means in its own policy"
    for virtual in virtual_tools_of(other):
        if virtual.as_.casefold() in used:
            yield f"virtual_tools.{virtual.as_}", virtual.tool, "what it means in its own policy"


def _names_used(policy: Policy) -> set[str]:
    """The tool names that a policy's clauses, aliases and virtual tools speak of."""
    names = [*policy.aliases, *(virtual.as_ for virtual in virtual_tools_of(policy))]
    nets = (made for net in policy.nets if isinstance(made := net_of(net), Net))
    for clause in (*policy.tool_rules, *policy.rules, *nets):
        names += NameScope().patterns(*clause.profile().all())
    return {name.casefold() for name in names}
