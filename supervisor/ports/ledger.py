"""What a store keeps of budgets that runs share: who draws how much, and what is left."""

from __future__ import annotations

from datetime import datetime

import msgspec

from proctor.policies.budget import BudgetClaim


class Draw(msgspec.Struct, frozen=True, kw_only=True):
    """What one run asks of one budget. It states totals, not changes: asked twice, it counts once.

    Attributes:
        claim: The budget, and whose share of it.
        used: What the run has used so far in all.
        want: How much to reserve for what comes next.
        least: If less than this is left, it gets nothing.
    """

    claim: BudgetClaim
    used: float = 0
    want: float = 0
    least: float = 0


class Drawn(msgspec.Struct, frozen=True, kw_only=True):
    """A store's answer to one draw.

    Attributes:
        claim: The budget, and whose share of it.
        granted: Whether anything could be reserved or, if nothing was wanted, whether use is within the budget.
        held: What is reserved for the run now, in place of what was reserved before.
        before: What all runs had used in this window before this draw.
        used: What all have used now.
        reserved: What is reserved for all current runs.
        resets_at: When the next window starts, UTC; None if that is not known in advance, or never happens.
    """

    claim: BudgetClaim
    granted: bool
    held: float
    before: float
    used: float
    reserved: float
    resets_at: datetime | None = None


class BudgetInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A shared budget as a list shows it, of one key.

    Attributes:
        budget: Its policy and its name: `policy/name`.
        key: Whose it is: the values at its `per`; "" if it is one budget for all runs.
        counts: What it counts: `cost_usd`, `total_tokens`, `tool_calls`, `duration_ms` or `running`.
        window: `day`, `month`, the length of a rolling window in ms as text, or "".
        max: The whole amount, as the last run that drew on it said.
        used: What is used in this window.
        reserved: What is reserved for current runs.
        runs: How many current runs draw on it.
        resets_at: When the next window starts, UTC; None if that is not known in advance, or never happens.
    """

    budget: str
    key: str = ""
    counts: str = ""
    window: str = ""
    max: float = 0
    used: float = 0
    reserved: float = 0
    runs: int = 0
    resets_at: datetime | None = None

    @property
    def left(self) -> float:
        """What can still be reserved; never below 0."""
        return max(0.0, round(self.max - self.used - self.reserved, 10))
