"""The limits of one session: what events and the passing of time move, and when to look again."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import EventError, wrong_type
from ..stream import events as ev
from ..stream.calls import LimitWarning, Violation
from ..values.equality import is_number
from .handlers import Handler, run_started
from .state import SessionState


def observe_limited(on: SessionState, event: ev.Event, handler: Handler | None) -> list[Violation]:
    """Take in an event; returns what it violates, limits included."""
    limits = on.program.limits
    found: list[Violation] = []
    if on.clocked and event.at is not None:
        if handler is run_started:  # a new run's clocks begin with it
            run_started(on, event)
            handler = None
        now = ev.at_ms(event.at)
        _passed(on, now)
        on.session.limits.acted(now, over=bool(on.session.ended))
        found += _newly_exceeded(on, limits.clocks)
    if handler is not None:
        found += handler(on, event) or ()
    if moved := limits.moved.get(type(event)):
        found += _newly_exceeded(on, moved)
    return found


def tick(on: SessionState, now_ms: int) -> list[Violation]:
    """The time is `now_ms`, in milliseconds since the epoch; nothing else happened. Raises EventError for another
    type.
    """
    if not is_number(now_ms):
        raise EventError(wrong_type("milliseconds since the epoch", now_ms))
    _passed(on, int(now_ms))
    return _newly_exceeded(on, on.program.limits.clocks)


def deadline(on: SessionState) -> int | None:
    """When to tick if nothing happens before, in milliseconds since the epoch."""
    if on.session.ended or not on.clocked:
        return None
    limits = on.program.limits
    return limits.deadline(on.session.limits, waiting=not limits.has_idle or on.waiting())


def warnings(on: SessionState) -> list[LimitWarning]:
    """The limits that passed their `warn_at` since last asked."""
    if not on.program.limits.warns:
        return []
    return list(on.program.limits.warnings(on.session.limits, on.session.meter))


def _passed(on: SessionState, now: int) -> None:
    limits = on.program.limits
    limits.passed(on.session.limits, now, waiting=not limits.has_idle or on.waiting())


def _newly_exceeded(on: SessionState, moved: Sequence[int]) -> list[Violation]:
    session = on.session
    if session.ended:
        return []
    found = on.program.limits.exceeded_now(session.limits, session.meter, moved)
    return [on.exceeded(each, None) for each in found] if found else []
