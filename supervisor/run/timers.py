"""One task that wakes many runs at their deadlines."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

import anyio

from .clock import Clock


class Alarm:
    """One run's next deadline. Setting it later costs nothing: the queue is looked at again when it wakes."""

    __slots__ = ("_queued_ms", "_ring", "_timers", "at_ms")

    def __init__(self, timers: Timers, ring: Callable[[int], None]) -> None:
        self._timers = timers
        self._ring = ring
        self._queued_ms: int | None = None
        self.at_ms: int | None = None

    def set(self, at_ms: int | None) -> None:
        """Ring at this moment (milliseconds since the epoch) and at no earlier one; None: not at all."""
        self.at_ms = at_ms
        if at_ms is not None and (self._queued_ms is None or at_ms < self._queued_ms):
            self._queued_ms = at_ms
            self._timers.push(at_ms, self)

    def wake(self, queued_ms: int, now_ms: int) -> None:
        """The queue has come to an entry of this alarm, which may be out of date."""
        if self._queued_ms != queued_ms:
            return
        self._queued_ms = None
        at_ms = self.at_ms
        if at_ms is None:
            return
        if at_ms > now_ms:
            self.set(at_ms)
            return
        self.at_ms = None
        self._ring(now_ms)


class Timers:
    """The deadlines of all runs of a supervisor, soonest first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queue: list[tuple[int, int, Alarm]] = []
        self._order = count()
        self._sooner = anyio.Event()

    def alarm(self, ring: Callable[[int], None]) -> Alarm:
        """A new alarm; `ring` is called with the moment in milliseconds and must not block or raise."""
        return Alarm(self, ring)

    def push(self, at_ms: int, alarm: Alarm) -> None:
        """Queue an alarm and wake the task if it is the first."""
        first = not self._queue or at_ms < self._queue[0][0]
        heapq.heappush(self._queue, (at_ms, next(self._order), alarm))
        if first:
            self._sooner.set()

    async def run(self) -> None:
        """Ring alarms until cancelled."""
        while True:
            self._sooner = anyio.Event()
            wait_s = self._clock.until(self._queue[0][0]) if self._queue else None
            if wait_s is None:
                await self._sooner.wait()
            elif wait_s > 0:
                with anyio.move_on_after(wait_s):
                    await self._sooner.wait()
            else:
                at_ms, _, alarm = heapq.heappop(self._queue)
                alarm.wake(at_ms, max(at_ms, self._clock.now_ms()))
                await anyio.lowlevel.checkpoint()
