"""Amounts of time as people write them: `90s`, `10m`, `1h30m`, `7d`."""

from __future__ import annotations

import re

PART = r"(\d{1,12}(?:\.\d{1,6})?)\s*(ms|s|m|h|d)"
"""One amount of time; a duration is one or several of them, the larger first."""
_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration_ms(text: str) -> int | None:
    """A duration in milliseconds; None for text that is not a duration."""
    parts = re.findall(PART, text)
    units = [unit for _, unit in parts]
    if not re.fullmatch(rf"\s*(?:{PART}\s*)+", text):
        return None
    if units != sorted(set(units), key=_MS.__getitem__, reverse=True):
        return None
    return sum(round(float(amount) * _MS[unit]) for amount, unit in parts)
