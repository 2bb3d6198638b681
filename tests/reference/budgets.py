"""Shared budgets the naive way: every use is stored, and everything is added again for each query."""

import math
from datetime import UTC, datetime
from typing import NamedTuple


class Use(NamedTuple):
    """The amount used of a budget, at a time."""

    budget: str
    run: str
    amount: float
    at_ms: int


class Ref:
    """The budgets of one store: `most` by name, with its window; the active runs and their owners."""

    def __init__(self, budgets: dict[str, tuple[float, str, str]]) -> None:
        self.budgets = budgets  # name -> (most, window, what it counts)
        self.now_ms = 0
        self.uses: list[Use] = []
        self.reported: dict[tuple[str, str], float] = {}  # (budget, run) -> the total that the run has reported
        self.held: dict[tuple[str, str], float] = {}
        self.owner: dict[str, str] = {}
        self.gone: set[str] = set()
        self.over: set[str] = set()

    def counts(self, run: str) -> bool:
        """Whether a run's reservation counts: once it has started and until it has ended, even if its
        owner is lost.
        """
        return run not in self.over

    def in_window(self, window: str, at_ms: int) -> bool:
        """Whether usage of that time counts now; later usage than now does."""
        if not window:
            return True
        if window.isdigit():
            part = int(window) // 60
            return at_ms - at_ms % part + part > self.now_ms - int(window)
        shape = {"day": "%Y-%m-%d", "week": "%G-%V", "month": "%Y-%m"}[window]
        then, now = (datetime.fromtimestamp(ms / 1000, UTC).strftime(shape) for ms in (at_ms, self.now_ms))
        return then >= now

    def used(self, budget: str) -> float:
        """The usage in the current window."""
        window = self.budgets[budget][1]
        return round(
            sum(use.amount for use in self.uses if use.budget == budget and self.in_window(window, use.at_ms)), 6
        )

    def reserved(self, budget: str, but: str = "") -> float:
        """The reservations of active runs."""
        return sum(
            held for (name, run), held in self.held.items() if name == budget and run != but and self.counts(run)
        )

    def draw(self, budget: str, run: str, used: float, want: float, least: float) -> tuple[bool, float, float, float]:
        """Whether it was granted, the run's reservation, and the usage before and now."""
        most, _, counts = self.budgets[budget]
        before = self.used(budget)
        counted = self.reported.get((budget, run), 0.0)
        if used > counted:
            self.uses.append(Use(budget, run, used - counted, self.now_ms))
            self.reported[budget, run] = used
        else:
            self.reported.setdefault((budget, run), counted)
        after = self.used(budget)
        left = round(most - after - self.reserved(budget, but=run), 6)
        left = math.floor(left) if counts in ("tool_calls", "running") else left
        before_held = self.held.get((budget, run), 0.0)
        if counts == "running" and 0 < want <= before_held:
            granted, held = True, want
        elif not want:
            granted, held = after <= most, 0.0
        else:
            granted = left > 0 and left >= least
            held = min(want, left) if granted else 0.0
        self.held[budget, run] = held
        return granted, held, before, after

    def settle(self, run: str, used: dict[str, float]) -> None:
        """A run reserves no more."""
        for budget, of in [key for key in self.reported if key[1] == run]:
            self.draw(budget, of, used.get(budget, 0.0), 0.0, 0.0)
            del self.reported[budget, of], self.held[budget, of]
