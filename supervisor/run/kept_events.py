"""The latest events of a run, for its result: a bound on their number and on their bytes."""

from __future__ import annotations

from collections.abc import Sequence

from proctor.policies.stream.events import Event

from ..machine.event_size import weight

MOST = 10_000
MOST_BYTES = 64 * 1024 * 1024


class KeptEvents:
    """What was stored last. `before` counts what was stored before that; the store has it."""

    __slots__ = ("_bytes", "_events", "before")

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._bytes = 0
        self.before = 0

    def add(self, events: Sequence[Event]) -> None:
        """Keep what was just stored, and let go of what is too much."""
        self._events += events
        self._bytes += sum(map(weight, events))
        if len(self._events) > 2 * MOST or self._bytes > MOST_BYTES + MOST_BYTES // 4:
            self._trim()

    def latest(self) -> tuple[Event, ...]:
        """Those that are kept, oldest first."""
        self._trim()
        return tuple(self._events)

    def _trim(self) -> None:
        start = max(len(self._events) - MOST, 0)
        self._bytes -= sum(map(weight, self._events[:start]))
        while self._bytes > MOST_BYTES and start < len(self._events) - 1:
            self._bytes -= weight(self._events[start])
            start += 1
        del self._events[:start]
        self.before += start
