"""What limits look at: moments of a session, by the run in which they happened."""

from itertools import pairwise
from typing import Literal, NamedTuple


class Moment(NamedTuple):
    """One thing that happened, at a time in ms.

    A run began or ended; tokens were told of; the stream came to a response, numbered in its run; a call was
    asked for in vain, held, or started; a call that waited ended; time went by. `reported` are the limits it
    exceeded, `warned` those that had passed their warning then.
    """

    what: Literal["run", "over", "tokens", "turn", "asked", "held", "started", "ended", "tick"]
    at: int = 0
    turn: int = 0
    id: str = ""
    input: int = 0
    output: int = 0
    cost: float | None = None
    model: str = "priced"
    reported: tuple[str, ...] = ()
    warned: tuple[str, ...] = ()


def runs(past: list[Moment]) -> list[list[Moment]]:
    """The moments of each run."""
    starts = [n for n, moment in enumerate(past) if moment.what == "run"]
    return [past[start:end] for start, end in pairwise([*starts, len(past)])]


def active(run: list[Moment]) -> list[int]:
    """When something happened: time that goes by is no activity."""
    return [moment.at for moment in run if moment.what != "tick"]


def waiting(run: list[Moment]) -> bool:
    """Whether a call runs or is held."""
    waited = {moment.id for moment in run if moment.what in ("held", "started")}
    return bool(waited - {moment.id for moment in run if moment.what == "ended"})


def idle(run: list[Moment]) -> int:
    """The longest time in which nothing happened, nothing ran and nobody was asked."""
    longest = 0
    for n, moment in enumerate(run[1:], 1):
        if not waiting(run[:n]):
            longest = max(longest, moment.at - active(run[:n])[-1])
    return longest
