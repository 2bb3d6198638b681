"""How a run's events reach the store.

`Journal` appends them by group commit: what arrives during a write is the next write, as one unit. `RunRecorder` ties
a journal to its run: it feeds the machine what was stored or failed, and publishes. `KeptEvents` are the latest of
them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import is_
from typing import TYPE_CHECKING, Protocol

import anyio
from anyio.lowlevel import checkpoint
from msgspec.structs import replace

from proctor.policies.errors import wrong_type
from proctor.policies.events import TERMINAL, Event
from proctor.policies.values.amounts import counted
from proctor.policies.values.foreign_code import as_error

from ..errors import StoreError, StoreErrorKind
from ..machine import interface
from ..machine.run_state import estimated_size
from ..store.invariants import fenced
from ..store.records import same_but_seq
from .tasks import OneShotEvent, call_isolated, store_timeout

if TYPE_CHECKING:
    from ..log import RunLog
    from ..machine.machine import RunMachine
    from ..machine.run_state import Outbox
    from ..ports.store import Store
    from .services import Services


def check_stored(given: Sequence[Event], stored: Sequence[Event]) -> None:
    """Raises StoreError if a store returns other events than it was given, their `seq` aside.

    For a repeated `event_id` it returns the event that it stored before.
    """
    if not isinstance(stored, list | tuple):
        raise StoreError(wrong_type("the stored events from `append` of the store", stored))
    if len(stored) != len(given):
        raise StoreError(
            f"the store gave back {len(stored)} of {counted(len(given), 'event')}; the events are not used"
        )
    if all(map(is_, given, stored)):  # as almost always
        return
    for event, back in zip(given, stored, strict=True):
        if back is event or (event.event_id and event.event_id == back.event_id):
            continue
        if not same_but_seq(back, event):
            raise StoreError(f"the store gave back another event than `{event.type}`; the events are not used")


CAPACITY = 1024
CAPACITY_BYTES = 32 * 1024 * 1024
"""How many events, and bytes, may wait to be stored before the provider is no longer read."""

ANSWER_S = 45.0
"""How long a store may take to answer before it counts as failed: longer than any store waits for its own file or
server, so that by then the append is stored or never will be.
"""

SILENCE_MS = 10_000
"""How long a store may leave an append unanswered while an agent acts that cannot be held. When the answer takes
longer, as in a process or a machine that was suspended, somebody else may have ended the run meanwhile.
"""

SETTLE_S = 1.0
"""The first pause before an append is retried after the run; it doubles each time, up to thirty times itself."""

NEVER: tuple[StoreErrorKind, ...] = (
    *("closed", "bad_record", "fenced", "run_over", "call_started", "conflict"),
    *("gone", "truncated", "forked", "newer_schema"),
)
"""Kinds of errors that a retry cannot help."""


class JournalListener(Protocol):
    """Called by a journal about each write, before any waiter continues."""

    def now_ms(self) -> int:
        """The moment, on a clock that also runs while the machine sleeps."""
        ...

    def durable(self, count: int) -> None:
        """So many events are durable."""

    def new(self, events: list[Event], size: int) -> None:
        """These were stored, of so many bytes."""

    def failed(self, error: Exception) -> None:
        """A write failed."""


@dataclass(slots=True, eq=False)
class Journal:
    """Appends the events of one machine in order, as the owner of that epoch. While `idle`, nothing is written until
    `flush` is called.

    # INVARIANT: the seq of its first event says where a unit belongs. An unanswered unit is appended again as it was,
    # or with more events behind it; the store stores each event once.
    """

    _store: Store
    _outbox: Outbox
    _epoch: int
    _listener: JournalListener  # one object, as each bound method takes memory of an idle run
    failure: Exception | None = None
    idle: bool = True
    _changed: OneShotEvent | None = None
    _unstored: Sequence[Event] = ()  # asked of the store, and not answered
    _writing: bool = False
    _writing_bytes: int = 0
    _durable: int = 0
    _last_seq: int = 0
    used: Mapping[str, float] | None = None  # of shared budgets, at the run's end
    settles_first: bool = False  # the store could not settle them: it is asked to before the end is stored

    @property
    def over_capacity(self) -> bool:
        """Whether so many bytes wait that no more events should be read."""
        return self._outbox.unwritten_bytes + self._writing_bytes >= CAPACITY_BYTES

    async def wait_for_capacity(self) -> None:
        """Wait until there is capacity for more events, or the store has failed."""
        while (len(self._outbox.unwritten) >= CAPACITY or self.over_capacity) and self.failure is None:
            await self._change()

    async def drained(self, within_s: float = math.inf) -> StoreError | None:
        """Wait until everything is written or the store has failed. A store that does not answer within `within_s`
        seconds has failed until it answers; then this returns the error.
        """
        while (self._outbox.unwritten or not self.idle) and self.failure is None:
            if within_s == math.inf:
                await self._change()
                continue
            with anyio.move_on_after(within_s) as waiting:
                await self._change()
            if waiting.cancelled_caught:
                self.failure = silent = store_timeout(within_s)
                self._wake()
                return silent
        return None

    def abandon(self, error: Exception) -> None:
        """Nothing more will be written: wake all waiters."""
        self.failure = error
        self._wake()

    async def flush(self) -> None:
        """Write until nothing waits or the store fails: then `failure` is set, and the journal is never `idle` again.
        Raises only a cancel.
        """
        self.idle = False
        self._writing = True
        try:
            while self._outbox.unwritten:
                self._writing_bytes = self._outbox.unwritten_bytes
                await self._write(self._outbox.drain_record())
                await checkpoint()  # what comes meanwhile needs no new task
        except Exception as error:
            self.failure = error
        except anyio.get_cancelled_exc_class():
            if self._unstored or self._outbox.unwritten:
                self.failure = StoreError("the store cancelled an append by itself")
            raise
        except BaseException as raised:
            self.failure = as_error(raised)
        finally:
            self._writing = False
            self.idle = self.failure is None
            if self.failure is not None:
                self._listener.failed(self.failure)
            self._wake()

    async def retry(self) -> StoreError | None:
        """After a failure, when the run is over: append what the store lacks once more, the run's end last, as one
        unit.

        If the store rejects a record, each is appended by itself, except the end; returns why it rejected the first.
        Raises what the store raises.
        """
        if self._writing or self.failure is None:
            self.failure = None
            await self.drained(ANSWER_S)
            if self._writing:  # it has had its time; `settle` goes on asking
                raise store_timeout(ANSWER_S)
        if self.failure is None:
            return None
        batch = self._lacking()
        refused = await self._refused(batch)
        self._unstored = ()
        for event in batch if refused is not None else ():
            if not isinstance(event, TERMINAL):
                await self._refused(self._unit([event]))
        return refused

    @property
    def unsettled(self) -> bool:
        """Whether the store has not confirmed everything."""
        return bool(self._unstored or self._outbox.unwritten)

    async def settle(self) -> None:
        """After the run: append what the store lacks until it is stored, or can never be."""
        pause = SETTLE_S
        batch = self._lacking()
        while batch:
            await anyio.sleep(pause)
            pause = min(2 * pause, 30 * SETTLE_S)
            try:
                await self._append(batch)
            except Exception as error:
                if getattr(error, "kind", None) in NEVER:
                    return
            else:
                self._unstored = batch = []

    def _lacking(self) -> list[Event]:
        self._unstored = batch = self._unit([*self._unstored, *self._outbox.drain_record()])
        return batch

    def _unit(self, batch: list[Event]) -> list[Event]:
        """The same events, numbered to follow what was stored of the run."""
        first = max(batch[0].seq, self._last_seq + 1) if batch else 0
        if not batch or batch[0].seq == first:
            return batch
        return [replace(event, seq=seq) for seq, event in enumerate(batch, first)]

    async def _refused(self, batch: list[Event]) -> StoreError | None:
        """Append events as a unit; returns the error that says which of them cannot be stored, or None."""
        try:
            await self._append(batch)
        except StoreError as error:
            if error.kind != "bad_record":
                raise
            return error
        return None

    async def _append(self, batch: list[Event]) -> None:
        with anyio.move_on_after(ANSWER_S):
            if self.used is not None and batch:
                if begun := batch[:-1]:  # fails where this owner has begun the run once more since
                    check_stored(begun, await self._store.append(begun, epoch=self._epoch))
                await self._settle_budgets(self.used, batch[0].run_id)
            stored = await self._store.append(batch, epoch=self._epoch)
            check_stored(batch, stored)
            self._publish_new(stored, sum(map(estimated_size, stored)))
            return
        raise store_timeout(ANSWER_S)

    async def _settle_budgets(self, used: Mapping[str, float], run_id: str) -> None:
        """Settle, as the store may have failed when it was asked to, and nobody settles an ended run."""
        try:
            await self._store.settle(run_id, used, epoch=self._epoch)
        except StoreError as error:
            if error.kind != "run_over":
                raise

    async def _write(self, batch: list[Event]) -> None:
        self._unstored = batch = self._unit(batch)
        if self.used is not None and self.settles_first:
            await self._settle_budgets(self.used, batch[0].run_id)
        began = self._listener.now_ms()
        stored = await self._store.append(batch, epoch=self._epoch)
        check_stored(batch, stored)
        self._unstored = ()
        if self._listener.now_ms() - began > SILENCE_MS and not isinstance(batch[-1], TERMINAL):
            await self._check_owned(batch[0].run_id)
        size, self._writing_bytes = self._writing_bytes, 0
        last_seq = self._last_seq
        if stored[0].seq <= last_seq and any(event.seq <= last_seq and not event.event_id for event in stored):
            self._last_seq = stored[-1].seq
            raise StoreError("the store has lost events of this run: an older copy took its place", kind="gone")
        self.failure = None  # it was only slow to answer
        self._durable += len(batch)
        self._listener.durable(self._durable)
        self._publish_new(stored, size)  # now, as observers may look at the run
        self._wake()

    async def _check_owned(self, run_id: str) -> None:
        """Raises StoreError if the run is another owner's, or over: its lease may have ended unseen."""
        run = await self._store.run(run_id)
        if run is not None and (run.ended_seq or (run.owner.epoch if run.owner else 0) != self._epoch):
            raise fenced(run_id, run.owner)

    def _publish_new(self, stored: list[Event], size: int) -> None:
        fresh = [event for event in stored if event.seq > self._last_seq]
        if fresh:
            self._last_seq = fresh[-1].seq
            self._listener.new(fresh, size)

    async def _change(self) -> None:
        if self._changed is None:
            self._changed = OneShotEvent()
        await self._changed.wait()

    def _wake(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None


HURRY_S = 5.0
"""How long the cancel of a run waits for the store; an append that was not answered may still be stored."""


class RunRecorder:
    """Ties a journal to its run: feeds the machine what was stored or failed, and publishes what was stored.

    `holds_all`: the adapter holds every call, so the store may be slow. `events` are the latest that were stored.
    """

    __slots__ = ("_deadline_alarm", "_feed", "_log", "_publish", "events", "journal", "now_ms")

    def __init__(
        self,
        machine: RunMachine,
        services: Services,
        epoch: int,
        *,
        holds_all: bool,
        feed: Callable[[interface.Input], None],
        now_ms: Callable[[], int],
        log: RunLog,
    ) -> None:
        self._feed = feed
        self.now_ms = now_ms
        self._log = log
        self._publish = services.publish
        self.events = KeptEvents()
        self._deadline_alarm = None if holds_all else services.timers.alarm(self._store_silent)
        self.journal = Journal(services.store, machine.outbox, epoch, self)

    async def flush(self) -> None:
        """Write what waits, and what arrives meanwhile."""
        self._expect_answer()
        await self.journal.flush()
        self.close()

    async def hurry(self) -> None:
        """Wait for the store, as the run is being cancelled; after `HURRY_S` it has failed."""
        if self.journal.failure is None:
            await checkpoint()  # a store that does not wait has answered then, which costs less than a time limit
        silent = await self.journal.drained(HURRY_S)
        if silent is not None:
            self.failed(silent)

    async def retry(self) -> None:
        """Append what the store lacks again, and feed the machine the outcome."""
        refused = failed = None
        try:
            refused = await call_isolated(self.journal.retry)
        except Exception as error:
            self._log.failed("store.incomplete", error)
            failed = error
        self._feed(interface.Retried(now_ms=self.now_ms(), refused=refused, error=failed))

    def close(self) -> None:
        """Stop waiting for an answer of the store."""
        if self._deadline_alarm is not None:
            self._deadline_alarm.set(None)

    def durable(self, count: int) -> None:
        self._expect_answer()
        self._feed(interface.Stored(now_ms=self.now_ms(), count=count))

    def new(self, events: list[Event], size: int) -> None:
        self.events.add(events, size)
        self._publish(events, size)

    def failed(self, error: Exception) -> None:
        self._log.failed("store.failed", error)
        self._feed(interface.StoreFailed(now_ms=self.now_ms(), error=error))

    def _expect_answer(self) -> None:
        """Limit how long an agent whose calls are not held may act while the store does not answer."""
        if self._deadline_alarm is not None:
            self._deadline_alarm.set(self.now_ms() + SILENCE_MS)

    def _store_silent(self, _: int) -> None:
        self.failed(store_timeout(SILENCE_MS / 1000))


MOST = 10_000
MOST_BYTES = 64 * 1024 * 1024


class KeptEvents:
    """The latest stored events, in the batches they were stored in; `before` counts those that only the store has."""

    __slots__ = ("_batches", "_bytes", "_count", "before")

    def __init__(self) -> None:
        self._batches: list[tuple[Sequence[Event], int]] = []  # a deque takes 0.7 KiB of each idle run
        self._bytes = 0
        self._count = 0
        self.before = 0

    def add(self, events: Sequence[Event], size: int) -> None:
        """Keep a batch that was just stored, of that many bytes, and drop the oldest beyond the bounds."""
        self._batches.append((events, size))
        self._count += len(events)
        self._bytes += size
        while len(self._batches) > 1 and self._too_much():
            gone, its_size = self._batches.pop(0)  # of `MOST`, as cheap as keeping count of those that are gone
            self._count -= len(gone)
            self._bytes -= its_size
            self.before += len(gone)

    def _too_much(self) -> bool:
        return self._bytes > MOST_BYTES or self._count - len(self._batches[0][0]) >= MOST

    def latest(self) -> tuple[Event, ...]:
        """Those that are kept, oldest first."""
        kept = [event for events, _ in self._batches for event in events]
        self.before += max(len(kept) - MOST, 0)
        latest = kept[-MOST:]
        self._batches = [(latest, self._bytes)]
        self._count = len(latest)
        return tuple(latest)
