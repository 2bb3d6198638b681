"""Several policies as one stack: what is added up, and what replaces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ..errors import PolicyError, read_each, wrong_type
from ..policy import SCOPES, Approval, Policy, Price, Stack, members_of
from ..reading.reader import check_policy
from .actions import strictest_stated
from .budgets import check_budgets
from .limits import effective_limits, first_reached


def merge_policies(policies: Sequence[Policy]) -> Stack:
    """Merge policies left to right; a stack among them counts as its members.

    Raises:
        PolicyError: the list is empty, one of them is not a policy or is wrong, or two budgets have one name.
    """
    if not isinstance(policies, list | tuple):
        raise PolicyError(wrong_type("a list of policies", policies))
    if not policies:
        raise PolicyError("expected a list of policies, got an empty one")
    read_each(check_policy, policies)
    members = tuple(member for policy in policies for member in members_of(policy))
    check_budgets(members)
    return _stack(members)


def checked_stack(policy: Policy) -> Stack:
    """The stack of a policy, or the stack itself; what was checked before is not checked again.

    Raises:
        PolicyError: it is not a policy, or something in it is wrong.
    """
    return merge_policies(list(members_of(policy)))


def _stack(members: tuple[Policy, ...]) -> Stack:
    """The merged view; aliases and virtual tools stay with the members they belong to."""
    merged = Stack(
        name=" + ".join(member.name for member in members),
        on_violation=strictest_stated(members),
        locked=all(member.locked for member in members),
        enforcement=_strict("required", (m.enforcement for m in members)),
        budgets=tuple(budget for member in members for budget in member.budgets),
        tool_rules=tuple(rule for member in members for rule in member.tool_rules),
        rules=tuple(rule for member in members for rule in member.rules),
        nets=tuple(net for member in members for net in member.nets),
        approval=_approval(members),
        prices=_prices(members),
        unpriced=_strict("reject", (m.unpriced for m in members)),
        metadata=_deep_merged(member.metadata for member in members),
        members=members,
    )
    return msgspec.structs.replace(merged, limits=first_reached(effective_limits(merged)))


def _approval(members: Iterable[Policy]) -> Approval | None:
    """The shortest wait and the strictest end of it; only who is among the approvers of all, for the least."""
    given = [member.approval for member in members if member.approval is not None]
    if not given:
        return None
    cancels = any(approval.on_timeout == "cancel" for approval in given)
    shortest = min(approval.timeout_s for approval in given)
    named = [approval.approvers for approval in given if approval.approvers is not None]
    return Approval(
        timeout_s=shortest,
        on_timeout="cancel" if cancels else "deny",
        approvers=tuple(who for who in named[0] if all(who in others for others in named)) if named else None,
        four_eyes=any(approval.four_eyes for approval in given),
        scope=min((approval.scope for approval in given), key=SCOPES.index),
    )


def _strict(strict: str, stated: Iterable[str | None]) -> Any:
    """The strict word if any member says it, else what is stated at all."""
    words = [word for word in stated if word is not None]
    return strict if strict in words else next(iter(words), None)


def _prices(members: Iterable[Policy]) -> dict[str, Price]:
    """Every price that is stated, a locked one over others; how they combine is told by `price_tables`."""
    prices: dict[str, Price] = {}
    fixed: dict[str, Price] = {}
    for member in members:
        prices |= member.prices
        if member.locked:
            fixed = {**member.prices, **fixed}
    return {**prices, **fixed}


def _deep_merged(layers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            old = merged.get(key)
            both = isinstance(old, Mapping) and isinstance(value, Mapping)
            merged[key] = _deep_merged([old, value]) if both else value  # type: ignore[list-item]
    return merged
