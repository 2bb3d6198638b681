"""What a benchmark returns: figures, and the bounds they are held against."""

from __future__ import annotations

from typing import Literal, NamedTuple

Unit = Literal["us", "ms", "x", "KiB", "MiB", "ev/s", "/s", "s", "share"]


class Row(NamedTuple):
    """One figure; `bound` is the most it may be, or with `at_least` the least."""

    work: str
    figure: float
    unit: Unit
    bound: float | None = None
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the figure keeps its bound; None where there is none."""
        if self.bound is None:
            return None
        return self.figure >= self.bound if self.at_least else self.figure <= self.bound


class Size(NamedTuple):
    """How much is measured: `quick` only shows that a benchmark works."""

    quick: bool

    def of(self, full: int, quick: int) -> int:
        """One of two amounts."""
        return quick if self.quick else full


def quantile(values: list[float], share: float) -> float:
    """The value that this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]
