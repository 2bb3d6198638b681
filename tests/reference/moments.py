"""The events that limits read, grouped by their run."""

from itertools import pairwise
from typing import Literal, NamedTuple


class Moment(NamedTuple):
    """One event, at a time in ms.

    A run started or ended; tokens were reported; a turn was reported, numbered in its run; a call was denied, held,
    or started; a pending call ended; time passed. `reported` are the limits it exceeded, `warned` those that had
    reached their warning then.
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
    """The events of each run."""
    starts = [n for n, moment in enumerate(past) if moment.what == "run"]
    return [past[start:end] for start, end in pairwise([*starts, len(past)])]


def active(run: list[Moment]) -> list[int]:
    """When something happened; passing time is no activity."""
    return [moment.at for moment in run if moment.what != "tick"]


def waiting(run: list[Moment]) -> bool:
    """Whether a call is running or pending."""
    waited = {moment.id for moment in run if moment.what in ("held", "started")}
    return bool(waited - {moment.id for moment in run if moment.what == "ended"})


def idle(run: list[Moment]) -> int:
    """The longest time without an event, a running call or a pending request."""
    longest = 0
    for n, moment in enumerate(run[1:], 1):
        if not waiting(run[:n]):
            longest = max(longest, moment.at - active(run[:n])[-1])
    return longest
