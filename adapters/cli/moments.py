"""Moments as people type them, and times as they read them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from math import floor, log10
from typing import Any

import click

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AGE = re.compile(r"(\d{1,6})\s*([smhdw])")
_AGO = re.compile(r"\s+ago\s*$")


def age(text: str) -> timedelta | None:
    """`90d`, `12h`, `30m`; None for anything else."""
    found = _AGE.fullmatch(text.strip())
    return None if found is None else timedelta(**{_UNITS[found[2]]: int(found[1])})


class Age(click.ParamType):  # type: ignore[type-arg]
    """So long ago: `90d`."""

    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        found = age(value)
        if found is None:
            self.fail(f"`{value}` is not an age; write `90d`, `12h` or `30m`", param, ctx)
        return found


class Moment(click.ParamType):  # type: ignore[type-arg]
    """A date, a date with a time, or so long ago; UTC where no zone is named."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        ago = age(_AGO.sub("", value))
        if ago is not None:
            return datetime.now(UTC) - ago
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(
                f"`{value}` is not a moment; write `2026-01-31`, `2026-01-31T08:00`, `2h` or `2h ago`", param, ctx
            )
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


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


def room(size: int) -> str:
    """Bytes as a file manager shows them."""
    if size < 1024:
        return f"{size} B"
    for unit, factor in (("KiB", 2**10), ("MiB", 2**20)):
        if size / factor < 1023.95:
            return f"{size / factor:.1f} {unit}"
    return f"{size / 2**30:.1f} GiB"
