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
        want: What it wants set aside for what comes next.
        least: With less than this left it gets nothing.
    """

    claim: BudgetClaim
    used: float = 0
    want: float = 0
    least: float = 0


class Drawn(msgspec.Struct, frozen=True, kw_only=True):
    """A store's answer to one draw.

    Attributes:
        claim: The budget, and whose share of it.
        granted: Whether anything could be set aside or, where nothing was wanted, not more is used than there is.
        held: What is set aside for the run; it takes the place of what was before.
        before: What all runs had used in this window before this draw.
        used: What all have used now.
        reserved: What is set aside for all runs that go on.
        resets_at: When the window starts again, UTC; None where that is not known ahead, or never.
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
        key: Whose it is: the values at its `per`; "" where it is one for all runs.
        counts: What it counts: `cost_usd`, `total_tokens`, `tool_calls`, `duration_ms` or `running`.
        window: `day`, `month`, the length of a rolling window in ms as text, or "".
        max: The whole amount, as the last run that drew on it said.
        used: What is used in this window.
        reserved: What is set aside for runs that go on.
        runs: How many runs that go on draw on it.
        resets_at: When the window starts again, UTC; None where that is not known ahead, or never.
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
