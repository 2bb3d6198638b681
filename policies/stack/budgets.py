"""The budgets that hold in a stack: all of them, so that none can be weakened by another policy."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..budget import COUNTED, WINDOWS, Budget
from ..errors import PolicyError, Problem
from ..policy import OnViolation, Policy, members_of
from ..stream.calls import STRICTNESS
from ..values.durations import duration_ms
from .actions import limit_action
from .limits import figure


class BudgetEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One budget that holds in a stack: the policy it comes from, whether that is locked, and its final action."""

    budget: Budget
    policy: str
    action: OnViolation
    locked: bool = False

    @property
    def id(self) -> str:
        """What it is called over all stacks."""
        return f"{self.policy}/{self.budget.name}"

    @property
    def counts(self) -> str:
        """What it counts."""
        return COUNTED[self.budget.limit]

    @property
    def paths(self) -> tuple[str, ...]:
        """What it is kept apart by: its `per`, and the session where that is its window."""
        own = self.budget.paths
        return (*own, "$.session_id") if self.budget.window == "session" and "$.session_id" not in own else own

    @property
    def window(self) -> str:
        """`day`, `month`, the length of a rolling window in ms, or ""."""
        window = self.budget.window
        if window is None or window == "session":
            return ""
        return window if window in WINDOWS else str(duration_ms(window))


def effective_budgets(policy: Policy) -> list[BudgetEntry]:
    """Every budget of a stack; those that are one and the same are merged field by field, the strictest wins."""
    found: dict[tuple[object, ...], BudgetEntry] = {}
    for member in members_of(policy):
        for budget in member.budgets:
            action = limit_action(member, budget.limit, budget.action, policy)
            entry = BudgetEntry(budget=budget, policy=member.name, action=action, locked=member.locked)
            same = (entry.id, entry.counts, entry.paths, entry.window, budget.key, budget.when)
            found[same] = strictest(found[same], entry) if same in found else entry
    return list(found.values())


def strictest(one: BudgetEntry, other: BudgetEntry) -> BudgetEntry:
    """Two entries of one budget as one: the smaller amount, the larger reserve, every warning, the stricter action.

    What has no order, such as its texts, is as the locked one says it, or else the first.
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
    """Raises PolicyError where policies of one name have budgets of one name that count differently.

    The record knows a budget by both names, so what is left of the one would be taken for what is left of the other.
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


def budget_in_words(entry: BudgetEntry) -> str:
    """What a budget says."""
    budget = entry.budget
    whose = f" per {' and '.join(entry.paths)}" if entry.paths else ""
    when = f" in {budget.window}" if budget.window and budget.window != "session" else ""
    return f"{budget.name}: {budget.limit} {figure(budget.max)}{whose}{when} ({entry.action})"
