"""A store's ledger of shared budgets: how much each run reserves, and how much is left."""

import math
from datetime import UTC, datetime, timedelta

import msgspec

from proctor.policies.limits import BudgetAccount


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """One run's request to one budget. It states totals, not changes: a repeated request counts once.

    Attributes:
        claim: The budget, and whose share of it.
        used: The total the run has used so far.
        want: How much to reserve for what comes next.
        least: If less than this is left, it gets nothing.
    """

    claim: BudgetAccount
    used: float = 0
    want: float = 0
    least: float = 0


class ReservationResult(msgspec.Struct, frozen=True, kw_only=True):
    """A store's answer to one reservation.

    Attributes:
        claim: The budget, and whose share of it.
        granted: Whether anything could be reserved or, if nothing was wanted, whether use is within the budget.
        held: Reserved for the run now, in place of the earlier reservation.
        before: Used by all runs in this window before this reservation.
        used: Used by all runs now.
        reserved: Reserved for all current runs.
        resets_at: When the next window starts, UTC; None if that is not known in advance, or never happens.
    """

    claim: BudgetAccount
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
        key: The budget's key: the values at its `per`; "" for a budget that all runs share.
        counts: The amount it counts: `cost_usd`, `total_tokens`, `tool_calls`, `duration_ms` or `running`.
        window: `day`, `week`, `month`, the length of a rolling window in ms as text, or "".
        max: The whole amount, as the last run that drew on it said.
        used: Used in this window.
        reserved: Reserved for current runs.
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
        """The amount that can still be reserved; never below 0."""
        return max(0.0, round(self.max - self.used - self.reserved, 10))


PARTS = 60
"""The number of parts of a rolling window; use leaves the window a part at a time, at most one part late."""

PARTS_KEPT = 400
"""How many parts of one budget and key are kept after they have left the window; the oldest are dropped."""

DIGITS = 10
"""Amounts are compared to this many digits, as sums of floats are inexact."""


class Window(msgspec.Struct, frozen=True):
    """A window of a budget at one moment: use now is counted in `part`, and use from `since` on counts.

    All are milliseconds since the epoch; `ends` is 0 for a window that never ends. `rolling` is the length of a
    rolling window, with the part that leaves late.
    """

    part: int
    since: int
    ends: int = 0
    rolling: int = 0

    def resets_at(self, oldest: int | None) -> datetime | None:
        """When the window starts again, or when the oldest use, in part `oldest`, leaves it."""
        ends = oldest + self.rolling if self.rolling and oldest is not None else self.ends
        return datetime.fromtimestamp(ends / 1000, UTC) if ends else None


def window_at(window: str, now_ms: int) -> Window:
    """The window of a claim at a moment."""
    if not window:
        return Window(0, 0)
    if window in ("day", "week", "month"):
        now = datetime.fromtimestamp(now_ms / 1000, UTC)
        start = now.replace(hour=0, minute=0, second=0, microsecond=0)
        if window == "month":
            start = start.replace(day=1)
        elif window == "week":
            start -= timedelta(days=start.weekday())
        after = start + timedelta(days={"day": 1, "week": 7, "month": 32}[window])
        after = after.replace(day=1) if window == "month" else after
        return Window(_ms(start), _ms(start), _ms(after))
    length = int(window)
    part = max(1, length // PARTS)
    return Window(now_ms - now_ms % part, now_ms - length - part + 1, rolling=length + part)


def allocate(reservation: Reservation, *, used: float, own: float, others: float) -> float | None:
    """The amount to reserve, given a budget's use, the run's reservation and those of others; None: not granted."""
    if reservation.claim.kind.at_once and own >= reservation.want > 0:
        return reservation.want  # a place is kept to the end, also when runs with a larger amount have taken more
    left = round(reservation.claim.max - used - others, DIGITS)
    if reservation.claim.kind.taken:
        left = math.floor(left)
    if not reservation.want:
        return 0.0 if round(reservation.claim.max - used, DIGITS) >= 0 else None
    return min(reservation.want, left) if left > 0 and left >= reservation.least else None


def grown(used: float, before: float) -> float:
    """By how much a run's total has grown; 0 for one that is lower than before."""
    return max(0.0, round(used - before, DIGITS))


def shown(
    claim: BudgetAccount, window: Window, used: float, oldest: int | None, *, reserved: float, runs: int
) -> BudgetInfo:
    """A budget as a list shows it; `oldest` is the first part of its window in which something was used."""
    return BudgetInfo(
        budget=claim.budget,
        key=claim.key,
        counts=claim.counts,
        window=claim.window,
        max=claim.max,
        used=round(used, DIGITS),
        reserved=reserved,
        runs=runs,
        resets_at=window.resets_at(oldest),
    )


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
