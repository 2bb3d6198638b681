"""The services that the runs of a supervisor share."""

from __future__ import annotations

import heapq
import math
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import anyio
import msgspec
from anyio.lowlevel import current_token

from proctor.policies.events import Event

from ..arguments import BOUNDS, RecordBounds
from ..errors import UsageError
from ..ports.adapter import Approver
from ..ports.store import Store
from ..redaction import Redactor

_ON = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
"""The system's clock that goes on while the machine sleeps, and that nobody sets: on macOS the monotonic one does.
Windows has none that Python reads.
"""
_MOST_S = 30.0
"""The longest sleep of a timer, because that stands still while the machine sleeps."""


class Clock:
    """Milliseconds since the epoch, from a clock that nobody sets: the system's, or the event loop's where that is
    another one, such as a virtual one.

    Create it within a running event loop. A step of the wall clock moves no deadline; time in which the machine
    sleeps counts, where the system knows it.
    """

    __slots__ = ("_is_systems", "_offset_ms", "_seconds", "longest_s")

    def __init__(self) -> None:
        native = getattr(current_token().native_token, "time", None)
        # uvloop's clock is the system's too; that of a test begins elsewhere
        self._is_systems = callable(native) and abs(native() - time.monotonic()) < 1
        self._seconds: Callable[[], float] = anyio.current_time
        if self._is_systems:
            self._seconds = time.monotonic if _ON is None else partial(time.clock_gettime, _ON)
        elif callable(native):  # all that `anyio.current_time` calls, for every event
            self._seconds = native
        self.longest_s = _MOST_S if self._is_systems else math.inf
        self._offset_ms = (time.time() - self._seconds()) * 1000

    def follow(self) -> None:
        """Follow what the wall clock was stepped by; no deadline may be pending."""
        if self._is_systems:  # else the clock may be a test's
            self._offset_ms = (time.time() - self._seconds()) * 1000

    def now_ms(self) -> int:
        """The moment, in milliseconds since the epoch."""
        return int(self._seconds() * 1000 + self._offset_ms)

    def monotonic(self) -> float:
        """Seconds on a clock that nobody sets."""
        return self._seconds()

    def until(self, at_ms: int) -> float:
        """Seconds from now until a moment, not below 0."""
        return max((at_ms - self._offset_ms) / 1000 - self._seconds(), 0.0)


class Alarm:
    """One run's next deadline. Moving it to a later moment is free: the queue is not changed until it comes due."""

    __slots__ = ("_callback", "_entries", "_queued_ms", "_timers", "at_ms")

    def __init__(self, timers: Timers, callback: Callable[[int], None]) -> None:
        self._timers = timers
        self._callback = callback
        self._queued_ms: int | None = None
        self._entries = 0
        self.at_ms: int | None = None

    def set(self, at_ms: int | None) -> None:
        """Call the function at this moment (milliseconds since the epoch) and not before; None: not at all."""
        self.at_ms = at_ms
        if at_ms is not None and (self._queued_ms is None or at_ms < self._queued_ms):
            self._queued_ms = at_ms
            self._entries += 1
            self._timers.push(at_ms, self)

    def drop(self) -> None:
        """Disarm it permanently, and drop the reference to its owner."""
        self.at_ms = self._queued_ms = None
        self._callback = _nothing
        self._timers.forget(self._entries)

    @property
    def dropped(self) -> bool:
        """Whether its entries in the queue are to be skipped."""
        return self._callback is _nothing

    def wake(self, queued_ms: int, now_ms: int) -> None:
        """An entry of this alarm is due in the queue; `set` may have moved the alarm since."""
        self._entries -= 1
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
        self._callback(now_ms)


def _nothing(now_ms: int) -> None:
    """Stands for a dropped alarm's callback."""


_MOST_DROPPED = 64
"""The queue is rebuilt once more than this many of its entries, and more than half, are of dropped alarms."""


class Timers:
    """The deadlines of all runs of a supervisor, soonest first; none is due before `due_ms`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.due_ms: float = math.inf
        self._queue: list[tuple[int, int, Alarm]] = []
        self._order = count()
        self._dropped = 0
        self._sooner = anyio.Event()

    def alarm(self, callback: Callable[[int], None]) -> Alarm:
        """A new alarm; `callback` is called with the moment in milliseconds and must not block or raise."""
        return Alarm(self, callback)

    def push(self, at_ms: int, alarm: Alarm) -> None:
        """Queue an alarm; wake the task if it is the soonest."""
        first = not self._queue or at_ms < self._queue[0][0]
        heapq.heappush(self._queue, (at_ms, next(self._order), alarm))
        if first:
            self.due_ms = at_ms
            self._sooner.set()

    def forget(self, entries: int) -> None:
        """Count the entries of a dropped alarm, which could stay in the queue for hours."""
        self._dropped += entries
        if self._dropped > max(_MOST_DROPPED, len(self._queue) // 2):
            self._queue[:] = [entry for entry in self._queue if not entry[2].dropped]
            heapq.heapify(self._queue)
            self._dropped = 0
            self.due_ms = self._queue[0][0] if self._queue else math.inf

    def fire(self, now_ms: int) -> None:
        """Call the alarms that are due. A task that never yields calls this itself from `due_ms` on."""
        queue = self._queue
        while queue and queue[0][0] <= now_ms:
            at_ms, _, alarm = heapq.heappop(queue)
            self.due_ms = queue[0][0] if queue else math.inf
            self._dropped -= alarm.dropped
            alarm.wake(at_ms, now_ms)

    async def run(self) -> None:
        """Call alarms when they are due, until cancelled."""
        while True:
            self._sooner = anyio.Event()
            wait_s = self._clock.until(self._queue[0][0]) if self._queue else None
            if wait_s is None:
                await self._sooner.wait()
            elif wait_s > 0:
                with anyio.move_on_after(min(wait_s, self._clock.longest_s)):
                    await self._sooner.wait()
            else:
                self.fire(max(self._queue[0][0], self._clock.now_ms()))
                await anyio.lowlevel.checkpoint()


HOLD_MS = 50
"""The longest time for which a cancel holds up the other agents."""


class CancelPriority:
    """Puts runs that are being cancelled first: until their agents got the cancel, busy agents are not read."""

    __slots__ = ("_clock", "_ending", "_free", "until_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ending = 0
        self._free = anyio.Event()
        self.until_ms = 0

    def acquire(self) -> None:
        """A run is being cancelled; it calls `release` once."""
        self._ending += 1
        self.until_ms = self._clock.now_ms() + HOLD_MS

    def release(self) -> None:
        """Its agent got the cancel, or needs none."""
        self._ending -= 1
        if not self._ending:
            self.until_ms = 0
            self._free.set()
            self._free = anyio.Event()

    async def wait(self) -> None:
        """Wait until no run has priority, `HOLD_MS` at most."""
        with anyio.move_on_after(self._clock.until(self.until_ms)):
            await self._free.wait()


class Services(msgspec.Struct, frozen=True, kw_only=True):
    """The services around a run: its store, the clock, the publishers of its events and its approver. `answerable` is
    false if nobody can answer a request for approval.
    """

    store: Store
    clock: Clock
    timers: Timers
    cancel_priority: CancelPriority
    publish: Callable[[list[Event], int], None]
    approver: Approver | None
    answerable: bool = True
    redactor: Redactor
    bounds: RecordBounds = BOUNDS
    log: Any


def check_thread(member: str, thread: int) -> None:
    """Raises UsageError in another thread than that of the run: its event loop would not be woken."""
    if threading.get_ident() != thread:
        raise UsageError(
            f"`{member}` was called in another thread; call it on the run's own event loop, which another thread "
            "reaches by `anyio.from_thread.run`"
        )
