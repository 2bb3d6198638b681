"""The limits of one session: what events and the passing of time move, and when to look again."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import EventError, wrong_type
from ..stream import events as ev
from ..stream.calls import LimitWarning, RunContext, Violation
from ..values.equality import is_number
from .compiled import CompiledPolicy
from .handlers import Handler, run_started
from .state import Judging


class Limited(Judging):
    """A session whose policy may limit what it uses."""

    def __init__(self, compiled: CompiledPolicy, context: RunContext) -> None:
        super().__init__(compiled, context)
        self._clocked = compiled.limits.has_clocks

    def observe_limited(self, event: ev.Event, handler: Handler | None) -> list[Violation]:
        """Take in an event; returns what it violates, limits included."""
        limits = self.compiled.limits
        found: list[Violation] = []
        if self._clocked and event.at is not None:
            if handler is run_started:  # a new run's clocks begin with it
                run_started(self, event)
                handler = None
            now = ev.at_ms(event.at)
            self._passed(now)
            self.session.limits.acted(now, over=bool(self.session.ended))
            found += self._newly_exceeded(limits.clocks)
        if handler is not None:
            found += handler(self, event)
        if moved := limits.moved.get(type(event)):
            found += self._newly_exceeded(moved)
        return found

    def tick(self, now_ms: int) -> list[Violation]:
        """It is `now_ms` (milliseconds since the epoch) and nothing happened. Raises EventError if it is none."""
        if not is_number(now_ms):
            raise EventError(wrong_type("milliseconds since the epoch", now_ms))
        self._passed(int(now_ms))
        found = self._newly_exceeded(self.compiled.limits.clocks)
        self.mark_violated(found)
        return found

    def deadline(self) -> int | None:
        """When to tick if nothing happens before, in milliseconds since the epoch."""
        if self.session.ended or not self._clocked:
            return None
        limits = self.compiled.limits
        return limits.deadline(self.session.limits, waiting=not limits.has_idle or self.waiting())

    def warnings(self) -> list[LimitWarning]:
        """The limits that passed their `warn_at` since last asked."""
        if not self.compiled.limits.warns:
            return []
        return list(self.compiled.limits.warnings(self.session.limits, self.session.meter))

    def _passed(self, now: int) -> None:
        limits = self.compiled.limits
        limits.passed(self.session.limits, now, waiting=not limits.has_idle or self.waiting())

    def _newly_exceeded(self, moved: Sequence[int]) -> list[Violation]:
        session = self.session
        if session.ended:
            return []
        found = self.compiled.limits.exceeded_now(session.limits, session.meter, moved)
        return [self.exceeded(each, None) for each in found] if found else []
