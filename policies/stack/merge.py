"""Several policies as one stack: what is added up, what replaces, and what no later policy may loosen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ..errors import PolicyError, Problem, wrong_type
from ..policy import Approval, Limit, Limits, OnViolation, Policy, Price, Stack, members_of
from ..reading.reader import check_policy
from ..rules.record import RuleAction
from ..stream.calls import STRICTNESS


class LimitEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One limit that holds in a stack: its kind, the policy it comes from, and its final action."""

    name: str
    limit: Limit
    policy: str
    action: OnViolation


class Loosened(msgspec.Struct, frozen=True, kw_only=True):
    """A policy's limit that is looser than the locked one of an earlier policy, and has no effect."""

    name: str
    policy: str
    max: float
    locked_policy: str
    ceiling: float


def merge_policies(policies: Sequence[Policy]) -> Stack:
    """Merge policies left to right; a stack among them counts as its members.

    Raises:
        PolicyError: there is none, or one of them is not a policy or is wrong.
    """
    if not isinstance(policies, list | tuple):
        raise PolicyError(wrong_type("a list of policies", policies))
    if not policies:
        raise PolicyError("expected a list of policies, got an empty one")
    problems: list[Problem] = []
    for policy in policies:
        try:
            check_policy(policy)
        except PolicyError as error:
            problems += error.problems
    if problems:
        raise PolicyError(problems)
    return _stack(tuple(member for policy in policies for member in members_of(policy)))


def _stack(members: tuple[Policy, ...]) -> Stack:
    """The merged view; aliases and virtual tools stay with the members they belong to."""
    merged = Stack(
        name=" + ".join(member.name for member in members),
        on_violation=_stated(members),
        locked=all(member.locked for member in members),
        enforcement="required" if any(m.enforcement == "required" for m in members) else "best_effort",
        tool_rules=tuple(rule for member in members for rule in member.tool_rules),
        rules=tuple(rule for member in members for rule in member.rules),
        nets=tuple(net for member in members for net in member.nets),
        approval=_approval(members),
        prices=_prices(members),
        unpriced=_unpriced(members),
        metadata=_deep_merged(member.metadata for member in members),
        members=members,
    )
    return msgspec.structs.replace(merged, limits=_tightest(effective_limits(merged)))


def effective_limits(policy: Policy) -> list[LimitEntry]:
    """The limits that hold, by kind: the last unlocked value and every locked one, save those implied.

    A locked value that a later, tighter one does not fully stand in for (its action is weaker, or it counts
    over less) stays beside it, so that no policy weakens a locked one.
    """
    members = members_of(policy)
    locked: dict[str, list[LimitEntry]] = {}
    last: dict[str, LimitEntry] = {}
    for member in members:
        for name, limit in member.limits.given():
            action = _limit_action(name, limit, member, policy)
            entry = LimitEntry(name=name, limit=limit, policy=member.name, action=action)
            if member.locked:
                locked.setdefault(name, []).append(entry)
            else:
                last[name] = entry
    found: list[LimitEntry] = []
    for name in Limits.__struct_fields__:
        candidates = [*locked.get(name, ()), *([last[name]] if name in last else [])]
        found += _without_implied(candidates)
    return found


def _limit_action(name: str, limit: Limit, member: Policy, stack: Policy) -> OnViolation:
    """The action of a limit. A refusal stops no spending: only the limit of calls inherits `deny`, others cancel."""
    action = effective_action(member, limit.action, stack)
    inherits = limit.action is None and name != "max_tool_calls"
    return "cancel" if inherits and action == "deny" else action


def _without_implied(candidates: Sequence[LimitEntry]) -> Iterator[LimitEntry]:
    """The entries that no other one stands in for; of equals, the first."""
    for n, entry in enumerate(candidates):
        before = any(_implies(other, entry) for other in candidates[:n])
        after = any(_implies(other, entry) and not _implies(entry, other) for other in candidates[n + 1 :])
        if not before and not after:
            yield entry


def _implies(strong: LimitEntry, weak: LimitEntry) -> bool:
    """Whether the one refuses at least as much, at least as strictly, wherever the other does."""
    as_tight = strong.limit.max <= weak.limit.max and _covers(strong.limit, weak.limit)
    return as_tight and STRICTNESS[strong.action] >= STRICTNESS[weak.action]


def _covers(wide: Limit, narrow: Limit) -> bool:
    """Whether what one counts includes what the other counts: a session includes its runs."""
    return wide.scope == "session" or narrow.scope == "run"


def loosened_limits(policy: Policy) -> list[Loosened]:
    """The limits with which a later policy tried to loosen a locked one."""
    found = []
    members = members_of(policy)
    for n, member in enumerate(members):
        ceilings = dict(member.limits.given()) if member.locked else {}
        for later in members[n + 1 :]:
            for name, limit in later.limits.given():
                ceiling = ceilings.get(name)
                if ceiling is not None and limit.max > ceiling.max and _covers(ceiling, limit):
                    found.append(
                        Loosened(
                            name=name,
                            policy=later.name,
                            max=limit.max,
                            locked_policy=member.name,
                            ceiling=ceiling.max,
                        )
                    )
    return found


def effective_action(member: Policy, own: RuleAction | None, stack: Policy) -> OnViolation:
    """The action of one clause of a member: its own, else the strictest stated in the stack.

    A clause without its own action is never weaker than its own policy (`cancel` if that states none).
    """
    if own is not None:
        return "cancel" if own == "halt" else own
    stated = _stated(members_of(stack))
    default = member.on_violation or "cancel"
    return default if stated is None or _strictness(default) > _strictness(stated) else stated


def _stated(members: Iterable[Policy]) -> OnViolation | None:
    """The strictest `on_violation` that is written out."""
    stated: list[OnViolation] = [m.on_violation for m in members if m.on_violation is not None]
    if not stated:
        return None
    strictest: OnViolation = max(stated, key=_strictness)
    return strictest


def _strictness(action: OnViolation) -> int:
    return STRICTNESS[action]


def _tightest(entries: Sequence[LimitEntry]) -> Limits:
    """For each kind the limit that is reached first."""
    values: dict[str, Limit] = {}
    for entry in entries:
        if entry.name not in values or entry.limit.max < values[entry.name].max:
            values[entry.name] = entry.limit
    return Limits(**values)


def _approval(members: Iterable[Policy]) -> Approval | None:
    """The shortest wait and the strictest end of it."""
    given = [member.approval for member in members if member.approval is not None]
    if not given:
        return None
    cancels = any(approval.on_timeout == "cancel" for approval in given)
    shortest = min(approval.timeout_s for approval in given)
    return Approval(timeout_s=shortest, on_timeout="cancel" if cancels else "deny")


def _prices(members: Iterable[Policy]) -> dict[str, Price]:
    """A later price replaces an earlier one, but none replaces a locked policy's."""
    prices: dict[str, Price] = {}
    fixed: dict[str, Price] = {}
    for member in members:
        prices |= member.prices
        if member.locked:
            fixed = {**member.prices, **fixed}
    return {**prices, **fixed}


def _unpriced(members: Iterable[Policy]) -> Any:
    stated = {member.unpriced for member in members} - {None}
    return "reject" if "reject" in stated else next(iter(stated), None)


def _deep_merged(layers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            old = merged.get(key)
            both = isinstance(old, Mapping) and isinstance(value, Mapping)
            merged[key] = _deep_merged([old, value]) if both else value  # type: ignore[list-item]
    return merged
