"""Several policies as one stack: which parts add up, and which replace earlier ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ..errors import PolicyError, Problem, read_each, wrong_type
from ..events.calls import STRICTNESS, fingerprint
from ..limits import LIMITS, WINDOWS, Budget, Kind, Limit, LimitKind, Limits, duration_ms
from ..policy import SCOPES, Approval, OnViolation, Policy, Price, Stack, members_of
from ..reading.load import check_policy
from ..rules.rule import RuleAction
from ..values.amounts import figure


def effective_action(member: Policy, own: RuleAction | None, stack: Policy) -> OnViolation:
    """The action of one clause of a policy: its own, else the strictest stated in the stack.

    A clause without its own action is never weaker than its policy (`cancel` if that states none).
    """
    if own is not None:
        return "cancel" if own == "halt" else own
    stated = strictest_stated(members_of(stack))
    default = member.on_violation or "cancel"
    return default if stated is None or STRICTNESS[default] > STRICTNESS[stated] else stated


def limit_action(member: Policy, kind: Kind, own: RuleAction | None, stack: Policy) -> OnViolation:
    """The action of one limit: as of a clause, except that only a limit on calls inherits `deny`.

    Denied calls do not stop tokens, cost, time and turns.
    """
    action = effective_action(member, own, stack)
    return "cancel" if action == "deny" and own is None and not kind.deny_suffices else action


def strictest_stated(members: Iterable[Policy]) -> OnViolation | None:
    """The strictest stated `on_violation`."""
    stated: list[OnViolation] = [m.on_violation for m in members if m.on_violation is not None]
    return max(stated, key=STRICTNESS.__getitem__, default=None)


class LimitEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One effective limit of a stack: its kind, its policy, and its final action."""

    name: str
    limit: Limit
    policy: str
    action: OnViolation

    @property
    def kind(self) -> LimitKind:
        return LIMITS[self.name]


def effective_limits(policy: Policy) -> list[LimitEntry]:
    """The effective limits, by kind: the last unlocked value and every locked one, without those that another
    implies.

    A locked value stays beside a later, lower one that does not imply it (its action is weaker, or it counts over
    less), so that no policy weakens a locked one.
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
    for name in LIMITS:
        candidates = [*locked.get(name, ()), *([last[name]] if name in last else [])]
        found += _without_implied(candidates)
    return found


def limits_of(member: Policy, stack: Policy) -> Iterator[LimitEntry]:
    """The limits of one policy, each with its action in the stack."""
    for name, limit in member.limits.given():
        action = limit_action(member, LIMITS[name], limit.action, stack)
        yield LimitEntry(name=name, limit=limit, policy=member.name, action=action)


def _without_implied(candidates: Sequence[LimitEntry]) -> Iterator[LimitEntry]:
    """The entries that no other one implies; of equal ones, the first."""
    for n, entry in enumerate(candidates):
        before = any(implies(other, entry) for other in candidates[:n])
        after = any(implies(other, entry) and not implies(entry, other) for other in candidates[n + 1 :])
        if not before and not after:
            yield entry


def implies(strong: LimitEntry, weak: LimitEntry) -> bool:
    """Whether `strong` denies whatever `weak` denies, at least as strictly, and warns no later."""
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


class BudgetEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One budget of a stack: its policy, whether that is locked, and its final action."""

    budget: Budget
    policy: str
    action: OnViolation
    locked: bool = False

    @property
    def id(self) -> str:
        """Its name across all stacks."""
        return f"{self.policy}/{self.budget.name}"

    @property
    def counts(self) -> str:
        return self.budget.kind.counts

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of its key: its `per`, and the session if that is its window."""
        own = self.budget.paths
        return (*own, "$.session_id") if self.budget.window == "session" and "$.session_id" not in own else own

    @property
    def window(self) -> str:
        """`day`, `week`, `month`, the length of a rolling window in ms, or ""."""
        window = self.budget.window
        if window is None or window == "session":
            return ""
        return window if window in WINDOWS else str(duration_ms(window))


def effective_budgets(policy: Policy) -> list[BudgetEntry]:
    """Every budget of a stack; entries of the same budget are merged, with the strictest value of each field."""
    found: dict[tuple[object, ...], BudgetEntry] = {}
    for member in members_of(policy):
        for entry in budgets_of(member, policy):
            budget = entry.budget
            same = (entry.id, entry.counts, entry.paths, entry.window, budget.key, fingerprint(budget.when))
            found[same] = strictest(found[same], entry) if same in found else entry
    return list(found.values())


def budgets_of(member: Policy, stack: Policy) -> Iterator[BudgetEntry]:
    """The budgets of one policy, each with its action in the stack."""
    for budget in member.budgets:
        action = limit_action(member, budget.kind, budget.action, stack)
        yield BudgetEntry(budget=budget, policy=member.name, action=action, locked=member.locked)


def strictest(one: BudgetEntry, other: BudgetEntry) -> BudgetEntry:
    """Merge two entries of one budget: the smaller amount, the larger reserve, every warning, the stricter action.

    Other fields, such as texts, are those of the locked entry, else of the first.
    """
    base, added = (other, one) if other.locked and not one.locked else (one, other)
    most = min(base.budget.max, added.budget.max)
    reserves = [min(reserve, most) for reserve in (base.budget.reserve, added.budget.reserve) if reserve is not None]
    fractions = sorted({*base.budget.fractions, *added.budget.fractions})
    budget = msgspec.structs.replace(
        base.budget,
        **{base.budget.limit: most},
        reserve=max(reserves, default=None),
        warn_at=tuple(fractions) or None,
    )
    action = max(base.action, added.action, key=STRICTNESS.__getitem__)
    return msgspec.structs.replace(base, budget=budget, action=action)


def check_budgets(members: Iterable[Policy]) -> None:
    """Raises PolicyError if policies of one name have budgets of one name that count differently.

    The store identifies a budget by both names, so that it would mix the two.
    """
    counted: dict[str, tuple[str, str]] = {}
    for member in members:
        for n, budget in enumerate(member.budgets):
            entry = BudgetEntry(budget=budget, policy=member.name, action="cancel")
            if counted.setdefault(entry.id, (entry.counts, entry.window)) != (entry.counts, entry.window):
                raise PolicyError(
                    [
                        Problem(
                            message=f"two policies named `{member.name}` have a budget `{budget.name}` each, which "
                            "count different things or over different windows",
                            path=f"budgets[{n}].name",
                            suggestion="give one of them another name",
                        )
                    ]
                )


def unit_of(stack: Policy, limit: str) -> str:
    """The unit of a limit by its name, or of a budget by `policy/name`; "" if the stack has neither."""
    kinds: dict[str, Kind] = {entry.id: entry.budget.kind for entry in effective_budgets(stack)}
    kind = LIMITS.get(limit) or kinds.get(limit)
    return kind.unit if kind else ""


def budget_in_words(entry: BudgetEntry) -> str:
    budget = entry.budget
    whose = f" per {' and '.join(entry.paths)}" if entry.paths else ""
    when = f" in {budget.window}" if budget.window and budget.window != "session" else ""
    return f"{budget.name}: {budget.limit} {figure(budget.max)}{whose}{when} ({entry.action})"


def names_alone(policy: Policy) -> tuple[Policy, ...]:
    """The members of a policy or a stack with their aliases and virtual tools, and nothing else."""
    return tuple(Policy(name=m.name, virtual_tools=m.virtual_tools, aliases=m.aliases) for m in members_of(policy))


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
    _check_size(members)
    check_budgets(members)
    return _stack(members)


MAX_RULES = 10_000
"""How many rules, nets and budgets a stack may have: preflight of so many takes seconds, of nets half a minute."""


def _check_size(members: Iterable[Policy]) -> None:
    found = sum(len(each) for one in members for each in (one.tool_rules, one.rules, one.nets, one.budgets))
    if found > MAX_RULES:
        raise PolicyError(
            f"the policies have {found:,} rules, nets and budgets, and {MAX_RULES:,} are the most that go together; "
            "name several tools in one rule, or write globs (`crm_*`)"
        )


def checked_stack(policy: Policy) -> Stack:
    """The stack of a policy, or the stack itself; checked once only. Raises PolicyError: it is not a policy, or not a
    valid one.
    """
    return merge_policies(list(members_of(policy)))


def _stack(members: tuple[Policy, ...]) -> Stack:
    """The merged stack; aliases and virtual tools stay with their policies."""
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
    """The shortest timeout, the strictest action, the approvers that all policies name, and the narrowest scope."""
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
    """The strict value if any policy states it, else any stated one."""
    words = [word for word in stated if word is not None]
    return strict if strict in words else next(iter(words), None)


def _prices(members: Iterable[Policy]) -> dict[str, Price]:
    """Every stated price, locked ones before others; see `price_tables` for how they combine."""
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


class PriceTables(msgspec.Struct, frozen=True):
    """The price of a model: the highest in the locked tables and the open one, else the public price.

    `open` has the prices of unlocked policies; later ones replace earlier ones. `locked` has those of each locked
    policy, and whether it caps the cost: then models that it does not name have public prices. With `reject`, the
    open table does not supply a price that a locked cap lacks.
    """

    open: dict[str, Price]
    locked: tuple[tuple[dict[str, Price], bool], ...] = ()
    reject: bool = False

    def __bool__(self) -> bool:
        return bool(self.open) or any(prices for prices, _ in self.locked)

    def at_least(self, other: PriceTables) -> bool:
        """Whether no model costs less than by other tables, as far as they say the same."""
        mine, others = ([[*prices.items(), capped] for prices, capped in each.locked] for each in (self, other))
        has_same = [*self.open.items()] == [*other.open.items()]
        same = has_same and all(each in others for each in mine)
        capped = (has_same or not other.open) and any(capped for _, capped in other.locked)
        return self.reject >= other.reject and all(each in mine for each in others) and (same or capped)


def caps_cost(member: Policy) -> bool:
    """Whether it has a limit or a budget of money."""
    return any(LIMITS[name].is_money for name, _ in member.limits.given()) or any(
        budget.kind.is_money for budget in member.budgets
    )


def price_tables(policy: Policy) -> PriceTables:
    unlocked: dict[str, Price] = {}
    locked = []
    for member in members_of(policy):
        if not member.locked:
            unlocked |= member.prices
        elif member.prices or caps_cost(member):
            locked.append((member.prices, caps_cost(member)))
    reject = any(member.locked and member.unpriced == "reject" for member in members_of(policy))
    return PriceTables(unlocked, tuple(locked), reject)
