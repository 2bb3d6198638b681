"""The budgets that hold in a stack: all of them, so that none can be loosened by another policy."""

from __future__ import annotations

import msgspec

from ..budget import COUNTED, WINDOWS, Budget
from ..policy import OnViolation, Policy, members_of
from ..stream.calls import STRICTNESS
from ..values.durations import duration_ms
from .actions import limit_action
from .limits import figure


class BudgetEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One budget that holds in a stack: the policy it comes from, and its final action."""

    budget: Budget
    policy: str
    action: OnViolation

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
    """Every budget of a stack; of those that are one and the same, the tightest with the strictest action."""
    found: dict[tuple[object, ...], BudgetEntry] = {}
    for member in members_of(policy):
        for budget in member.budgets:
            action = limit_action(member, budget.limit, budget.action, policy)
            entry = BudgetEntry(budget=budget, policy=member.name, action=action)
            same = (entry.id, entry.counts, entry.paths, entry.window, budget.key, budget.when)
            tightest = found.get(same)
            found[same] = entry if tightest is None else _tighter(tightest, entry)
    return list(found.values())


def _tighter(one: BudgetEntry, other: BudgetEntry) -> BudgetEntry:
    tight, loose = (one, other) if one.budget.max <= other.budget.max else (other, one)
    action = max(tight.action, loose.action, key=STRICTNESS.__getitem__)
    return msgspec.structs.replace(tight, action=action)


def budget_in_words(entry: BudgetEntry) -> str:
    """What a budget says."""
    budget = entry.budget
    whose = f" per {' and '.join(entry.paths)}" if entry.paths else ""
    when = f" in {budget.window}" if budget.window and budget.window != "session" else ""
    return f"{budget.name}: {budget.limit} {figure(budget.max)}{whose}{when} ({entry.action})"
