"""The limits that hold in a stack: a later one replaces an earlier one, and a locked one stays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from ..policy import Limit, Limits, OnViolation, Policy, members_of
from ..stream.calls import STRICTNESS
from .actions import limit_action


class LimitEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One limit that holds in a stack: its kind, the policy it comes from, and its final action."""

    name: str
    limit: Limit
    policy: str
    action: OnViolation


def effective_limits(policy: Policy) -> list[LimitEntry]:
    """The limits that hold, by kind: the last unlocked value and every locked one, save those implied.

    A locked value that a later, tighter one does not fully stand in for (its action is weaker, or it counts
    over less) stays beside it, so that no policy weakens a locked one.
    """
    locked: dict[str, list[LimitEntry]] = {}
    last: dict[str, LimitEntry] = {}
    for member in members_of(policy):
        for entry in limits_of(member, policy):
            if member.locked:
                locked.setdefault(entry.name, []).append(entry)
            else:
                last[entry.name] = entry
    found: list[LimitEntry] = []
    for name in Limits.__struct_fields__:
        candidates = [*locked.get(name, ()), *([last[name]] if name in last else [])]
        found += _without_implied(candidates)
    return found


def limits_of(member: Policy, stack: Policy) -> Iterator[LimitEntry]:
    """The limits of one member, each with the action it has in the stack."""
    for name, limit in member.limits.given():
        action = limit_action(member, name, limit.action, stack)
        yield LimitEntry(name=name, limit=limit, policy=member.name, action=action)


def _without_implied(candidates: Sequence[LimitEntry]) -> Iterator[LimitEntry]:
    """The entries that no other one stands in for; of equals, the first."""
    for n, entry in enumerate(candidates):
        before = any(implies(other, entry) for other in candidates[:n])
        after = any(implies(other, entry) and not implies(entry, other) for other in candidates[n + 1 :])
        if not before and not after:
            yield entry


def implies(strong: LimitEntry, weak: LimitEntry) -> bool:
    """Whether the one refuses at least as much, at least as strictly, and warns no later, wherever the other does."""
    includes = strong.limit.scope == "session" or weak.limit.scope == "run"  # a session includes its runs
    as_tight = strong.limit.max <= weak.limit.max and includes
    return as_tight and STRICTNESS[strong.action] >= STRICTNESS[weak.action] and _warns_as_soon(strong, weak)


def _warns_as_soon(strong: LimitEntry, weak: LimitEntry) -> bool:
    if weak.limit.warn_at is None:
        return True
    return strong.limit.warn_at is not None and (
        strong.limit.warn_at * strong.limit.max <= weak.limit.warn_at * weak.limit.max
    )


def first_reached(entries: Sequence[LimitEntry]) -> Limits:
    """For each kind the limit that is reached first."""
    values: dict[str, Limit] = {}
    for entry in entries:
        if entry.name not in values or entry.limit.max < values[entry.name].max:
            values[entry.name] = entry.limit
    return Limits(**values)


def figure(amount: float) -> str:
    """An amount as it is read: whole numbers in full, parts to six places."""
    if 0 < abs(amount) < 1e-6:
        return f"{amount:g}"
    return f"{amount:,.6f}".rstrip("0").rstrip(".")
