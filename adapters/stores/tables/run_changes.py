"""What lists show of a run, in its row: how the figures follow from its events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from proctor.supervisor.store.tally import FIGURES, RunTally, ms_of

_N = len(FIGURES)
_OPEN = "ended_seq IS NULL"


class Change(NamedTuple):
    """One kind of change: {0} is the run's id, the other places are the values that `row` gives after it; {greater}
    is the function that gives the greater of two.
    """

    sets: str
    where: str
    row: Callable[[RunTally], tuple[Any, ...] | None]


def _counts(tally: RunTally) -> tuple[Any, ...] | None:
    return (tally.calls, tally.violations) if tally.calls or tally.violations else None


def _usage(tally: RunTally) -> tuple[Any, ...] | None:
    return (*tally.added, *tally.floor) if any(tally.floor) else None


def _end(tally: RunTally) -> tuple[Any, ...] | None:
    event = tally.ended
    return None if event is None else (event.seq, ms_of(event), *tally.settled)


def _totals(template: str) -> str:
    places = ((name, f"{{{n}}}", f"{{{n + _N}}}") for n, name in enumerate(FIGURES, 1))
    return ", ".join(template.format(name=name, first=first, second=second) for name, first, second in places)


def _in_flight(tally: RunTally) -> tuple[Any, ...] | None:
    return None if tally.in_flight is None else (tally.in_flight,)


FIGURED: tuple[Change, ...] = (
    Change("calls = calls + {1}, violations = violations + {2}", "TRUE", _counts),
    Change(_totals("{name} = {{greater}}({name} + {first}, {second})"), _OPEN, _usage),
    Change(
        "ended_seq = {1}, ended_ms = {2}, "
        + ", ".join(f"{name} = coalesce({{{n}}}, {name})" for n, name in enumerate(FIGURES, 3)),
        _OPEN,
        _end,
    ),
)
IN_FLIGHT = Change("calls_in_flight = {1}", "TRUE", _in_flight)
"""Of nothing but figures."""
