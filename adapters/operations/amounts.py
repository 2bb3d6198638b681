"""Amounts as people read them: money, tokens, durations, counts."""

from __future__ import annotations

from math import floor, log10


def took(ms: int) -> str:
    """How long something took, in the two largest units."""
    seconds = ms / 1000
    if seconds < 1:
        return f"{ms}ms"
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours < 48 else f"{hours // 24}d{hours % 24:02}h"


def amount(count: int) -> str:
    """A count in at most five characters: 999, 12.3k, 4.5M."""
    if count < 1000:
        return str(count)
    for unit, size in (("k", 1e3), ("M", 1e6), ("G", 1e9)):
        if count / size < 999.5:
            return f"{count / size:.1f}{unit}" if count / size < 99.95 else f"{count / size:.0f}{unit}"
    return f"{count / 1e12:.1f}T"


def dollars(cost_usd: float) -> str:
    """Money, one amount always alike: to the cent; below a dollar to a hundredth of one where there is such a part,
    and what is even less with two figures.
    """
    if cost_usd >= 1 or not cost_usd:
        return f"${cost_usd:,.2f}"
    places = 4 if cost_usd >= 0.001 else 1 - floor(log10(cost_usd))
    whole, _, part = f"{cost_usd:.{places}f}".partition(".")
    return f"${whole}.{part.rstrip('0'):0<2}"


def counted(number: int, noun: str) -> str:
    """A count with its noun: 1 call, 2 calls."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
