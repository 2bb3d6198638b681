"""Amounts as people read them: money, counts, figures."""

import re
from math import floor, log10
from typing import Final

_PLURAL: Final = re.compile("(?<=[a-z]{2})s(?= |$)")
"""The ending of a plural; `ms` is none."""


def figure(amount: float) -> str:
    """A number as text: whole numbers in full, fractions to six places."""
    if 0 < abs(amount) < 1e-6:
        return f"{amount:g}"
    return f"{amount:,.6f}".rstrip("0").rstrip(".")


def noun_of(number: int, noun: str, plural: str = "") -> str:
    """The noun of a figure, in the singular for one; `plural` is given if it is more than an added `s`."""
    return noun if number == 1 else plural or f"{noun}s"


def counted(number: int, noun: str, plural: str = "") -> str:
    """A figure with its noun."""
    return f"{number:,} {noun_of(number, noun, plural)}"


def dollars(cost_usd: float) -> str:
    """An amount of money: to the cent; below a dollar, to a hundredth of a cent; smaller ones with two figures."""
    if cost_usd >= 1 or not cost_usd:
        return f"${cost_usd:,.2f}"
    places = 4 if cost_usd >= 0.001 else 1 - floor(log10(cost_usd))
    whole, _, part = f"{cost_usd:.{places}f}".partition(".")
    return f"${whole}.{part.rstrip('0'):0<2}"


def figure_in(unit: str, amount: float) -> str:
    """A number whose unit is written elsewhere; money has its sign in any case."""
    return dollars(amount) if unit == "USD" else figure(amount)


def used_of(unit: str, used: float, most: float) -> str:
    """A use and its bound: 3 of 10, $0.08 of $0.10."""
    return f"{figure_in(unit, used)} of {figure_in(unit, most)}"


def amount_in(unit: str, amount: float) -> str:
    """An amount with its unit (as `Kind.unit` names it), in the singular for one: $0.10, 1 tool call, 20,000 ms."""
    if unit == "USD":
        return dollars(amount)
    return f"{figure(amount)} {unit if amount != 1 else _PLURAL.sub('', unit, count=1)}"
