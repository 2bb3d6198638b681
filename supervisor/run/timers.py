"""Deadlines of many runs: one task that wakes them, and the right of way of those that end."""

from __future__ import annotations

import heapq
import math
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
    """The deadlines of all runs of a supervisor, soonest first; nothing rings before `due_ms`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.due_ms: float = math.inf
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
            self.due_ms = at_ms
            self._sooner.set()

    def ring(self, now_ms: int) -> None:
        """Ring what is due. A task that never yields must call this itself from `due_ms` on."""
        queue = self._queue
        while queue and queue[0][0] <= now_ms:
            at_ms, _, alarm = heapq.heappop(queue)
            self.due_ms = queue[0][0] if queue else math.inf
            alarm.wake(at_ms, now_ms)

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
                self.ring(max(self._queue[0][0], self._clock.now_ms()))
                await anyio.lowlevel.checkpoint()


HOLD_MS = 50
"""The longest time that ending runs hold up an agent that never waits."""


class RightOfWay:
    """Runs that end go first: until their agents are told to stop, others that never wait are not read on."""

    __slots__ = ("_clock", "_ending", "_free", "until_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ending = 0
        self._free = anyio.Event()
        self.until_ms = 0

    def take(self) -> None:
        """A run begins to end; it is to give back the right, once."""
        self._ending += 1
        self.until_ms = self._clock.now_ms() + HOLD_MS

    def give_back(self) -> None:
        """Its agent is told, or need not be."""
        self._ending -= 1
        if not self._ending:
            self.until_ms = 0
            self._free.set()
            self._free = anyio.Event()

    async def wait(self) -> None:
        """Wait until no run has the right of way, and at most as long as it holds."""
        with anyio.move_on_after(self._clock.until(self.until_ms)):
            await self._free.wait()
