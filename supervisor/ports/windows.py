"""When a budget starts anew, and what can be set aside of it: the arithmetic that all stores share.

What is used is kept by the moment its part of a window began, on the store's clock. What was kept under a later
moment than now counts too: a clock that is set back gives nothing back.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import msgspec

from .ledger import Draw

PARTS = 60
"""Into how many parts a rolling window is cut: what was used leaves it part by part, a part late."""
PARTS_KEPT = 400
"""Of one budget and key; the oldest are dropped."""
DIGITS = 10
"""To how many digits amounts are compared: a sum of floats is a little off."""


class Window(msgspec.Struct, frozen=True):
    """A window of a budget at one moment: what is used now is kept under `part`, what was kept from `since` on
    counts.

    All are milliseconds since the epoch; `ends` is 0 for a window that never does. `rolling` is the length of a
    rolling one, with the part that goes out late.
    """

    part: int
    since: int
    ends: int = 0
    rolling: int = 0

    def resets_at(self, oldest: int | None) -> datetime | None:
        """When it starts again, or when what was used longest ago, in part `oldest`, leaves it."""
        ends = oldest + self.rolling if self.rolling and oldest is not None else self.ends
        return datetime.fromtimestamp(ends / 1000, UTC) if ends else None


def window_at(window: str, now_ms: int) -> Window:
    """The window of a claim at a moment."""
    if not window:
        return Window(0, 0)
    if window in ("day", "month"):
        now = datetime.fromtimestamp(now_ms / 1000, UTC)
        start = now.replace(hour=0, minute=0, second=0, microsecond=0)
        if window == "month":
            start = start.replace(day=1)
        after = start + timedelta(days=1) if window == "day" else (start + timedelta(days=32)).replace(day=1)
        return Window(_ms(start), _ms(start), _ms(after))
    length = int(window)
    part = max(1, length // PARTS)
    return Window(now_ms - now_ms % part, now_ms - length - part + 1, rolling=length + part)


def set_aside(draw: Draw, *, used: float, others: float) -> float | None:
    """What is set aside of a budget of which so much is used, and so much reserved by others; None: not granted."""
    left = round(draw.claim.max - used - others, DIGITS)
    if draw.claim.counts in ("tool_calls", "running"):
        left = math.floor(left)
    if not draw.want:
        return 0.0 if round(draw.claim.max - used, DIGITS) >= 0 else None
    return min(draw.want, left) if left > 0 and left >= draw.least else None


def grown(used: float, before: float) -> float:
    """By how much a run's total has grown; one that is lower than it was takes nothing back."""
    return max(0.0, round(used - before, DIGITS))


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
