"""Checks a client's usage figures: a value that is not a number, or a total that falls, is an error that names it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from proctor.policies.errors import EventError


def tokens(report: Mapping[str, Any], name: str) -> int:
    """The count of tokens at `name` in a `report`; one that is absent or null is 0.

    Raises EventError for anything that is not a whole number, and for one below zero.
    """
    value = report.get(name)
    if value is None:
        return 0
    if type(value) is not int or value < 0:
        raise EventError(f"usage: `{name}` is {value!r:.100}, which is not an amount of tokens")
    return value


def dollars(report: Mapping[str, Any], name: str) -> float:
    """The amount in USD at `name` in a `report`; one that is absent or null is 0.

    Raises EventError for anything that is not a number, and for one below zero.
    """
    value = report.get(name)
    if value is None:
        return 0.0
    if type(value) not in (int, float) or not 0 <= value < math.inf:
        raise EventError(f"usage: `{name}` is {value!r:.100}, which is not an amount in USD")
    return float(value)


def check_growth(before: Mapping[str, float], now: Mapping[str, float]) -> None:
    """Check that no running total of `now` is below `before`. Raises EventError for one that fell."""
    for name, value in now.items():
        if value < before.get(name, 0) - 1e-9:  # amounts in USD are sums of fractions
            raise EventError(f"usage: `{name}` fell from {before[name]} to {value}: what was used stays used")
