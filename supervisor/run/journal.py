"""Group commit of one run's record: what came while the last write was under way is written as one unit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import anyio
from anyio.lowlevel import checkpoint
from msgspec.structs import replace

from proctor.policies.stream.events import TERMINAL, Event

from ..errors import StoreError, as_error
from ..machine.events.sizes import weight
from ..machine.machine import RunMachine
from ..ports.adapters import Store
from .foreign.isolation import silence
from .foreign.stored import check_stored

ROOM = 1024
ROOM_BYTES = 32 * 1024 * 1024
"""The most events that wait, and the most bytes; a provider that reports faster is read no further until some are
stored.
"""
ANSWER_S = 45.0
"""How long a store may take to answer before it has failed: longer than every store is patient with its own file or
server, so that what it was asked is either stored or never will be.
"""

SETTLE_S = 1.0
"""How long after a failed end the store is asked again; then twice as long, up to thirty times."""
_NEVER = ("closed", "bad_record", "fenced", "run_over", "call_started", "conflict", "gone", "truncated", "forked")


class Journal:
    """Writes the record of one machine in order as the owner of that epoch, tells it how far that got, and hands over
    what was stored.

    `stored(count)` is called after each write with the number of events that are durable, `failed(error)` when a
    write failed, before any waiter is let go, `publish(events, size)` gets what was stored and about how many
    bytes it takes. `idle` says that somebody has to call `flush` before anything
    that waits is written.

    # INVARIANT: what is appended as a unit says by the seq of its first event where it belongs. A unit that nobody
    # answered for is appended again as it was, or with more behind it, and the store keeps what it has of it once.
    """

    __slots__ = (
        "_changed",
        "_durable",
        "_epoch",
        "_failed",
        "_last_seq",
        "_outbox",
        "_publish",
        "_store",
        "_stored",
        "_unstored",
        "_writing",
        "_writing_bytes",
        "failure",
        "idle",
    )

    def __init__(
        self,
        store: Store,
        machine: RunMachine,
        *,
        epoch: int = 0,
        stored: Callable[[int], None],
        failed: Callable[[Exception], None],
        publish: Callable[[list[Event], int], None],
    ) -> None:
        self._store = store
        self._epoch = epoch
        self._outbox = machine.outbox
        self._stored = stored
        self._failed = failed
        self._publish = publish
        self._changed: anyio.Event | None = None
        self._unstored: Sequence[Event] = ()  # asked of the store, and not answered
        self._writing = False
        self._writing_bytes = 0
        self._durable = 0
        self._last_seq = 0
        self.failure: Exception | None = None
        self.idle = True

    @property
    def crowded(self) -> bool:
        """Whether too many bytes wait for more to be taken in."""
        return self._outbox.unwritten_bytes + self._writing_bytes >= ROOM_BYTES

    async def room(self) -> None:
        """Wait until little enough waits to be written, or nothing can be."""
        while (len(self._outbox.unwritten) >= ROOM or self.crowded) and self.failure is None:
            await self._change()

    async def drained(self, within_s: float = math.inf) -> StoreError | None:
        """Wait until nothing waits to be written, or nothing can be. A store that leaves an append unanswered
        for `within_s` seconds has failed, until it answers: then this returns the error.
        """
        while (self._outbox.unwritten or not self.idle) and self.failure is None:
            with anyio.move_on_after(within_s) as waiting:
                await self._change()
            if waiting.cancelled_caught:
                self.failure = silent = silence(within_s)
                self._wake()
                return silent
        return None

    def give_up(self, error: Exception) -> None:
        """Nothing more will be written: let all waiters go."""
        self.failure = error
        self._wake()

    async def flush(self) -> None:
        """Write until nothing more comes, or until the store fails: then `failure` says how, and it is never
        `idle` again. Raises nothing of the store's but a cancel.
        """
        self.idle = False
        self._writing = True
        try:
            while self._outbox.unwritten:
                self._writing_bytes = self._outbox.unwritten_bytes
                await self._write(self._outbox.take_record())
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
                self._failed(self.failure)
            self._wake()

    async def retry(self) -> StoreError | None:
        """After a failure, when the run is over: store once more what the store lacks, its end last, as one unit.

        Where it refuses a record, each is stored by itself, but not the end; gives why it refused the first.
        Raises what the store raises.
        """
        if self._writing or self.failure is None:
            self.failure = None
            await self.drained(ANSWER_S)
            if self._writing:  # it has had its time; `settle` goes on asking
                raise silence(ANSWER_S)
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
    def owes(self) -> bool:
        """Whether the store lacks something, as far as it has said."""
        return bool(self._unstored or self._outbox.unwritten)

    async def settle(self) -> None:
        """After the run: go on asking the store for what it lacks, until it has it or never will."""
        pause = SETTLE_S
        batch = self._lacking()
        while batch:
            await anyio.sleep(pause)
            pause = min(2 * pause, 30 * SETTLE_S)
            try:
                await self._append(batch)
            except Exception as error:
                if getattr(error, "kind", None) in _NEVER:
                    return
            else:
                self._unstored = batch = []

    def _lacking(self) -> list[Event]:
        """What was not stored, as far as the store has said, and all that came after it."""
        self._unstored = batch = self._unit([*self._unstored, *self._outbox.take_record()])
        return batch

    def _unit(self, batch: list[Event]) -> list[Event]:
        """The same events, at their place behind what was stored of the run."""
        first = max(batch[0].seq, self._last_seq + 1) if batch else 0
        if not batch or batch[0].seq == first:
            return batch
        return [replace(event, seq=seq) for seq, event in enumerate(batch, first)]

    async def _refused(self, batch: list[Event]) -> StoreError | None:
        """Store events as a unit, or give the error that says which of them cannot be stored."""
        try:
            await self._append(batch)
        except StoreError as error:
            if error.kind != "bad_record":
                raise
            return error
        return None

    async def _append(self, batch: list[Event]) -> None:
        with anyio.move_on_after(ANSWER_S):
            stored = await self._store.append(batch, epoch=self._epoch)
            check_stored(batch, stored)
            self._hand_over(stored, sum(map(weight, stored)))
            return
        raise silence(ANSWER_S)

    async def _write(self, batch: list[Event]) -> None:
        self._unstored = batch = self._unit(batch)
        stored = await self._store.append(batch, epoch=self._epoch)
        check_stored(batch, stored)
        self._unstored = ()
        size, self._writing_bytes = self._writing_bytes, 0
        self.failure = None  # it was only slow to answer
        self._durable += len(batch)
        self._stored(self._durable)
        self._hand_over(stored, size)  # now, as observers may look at the run
        self._wake()

    def _hand_over(self, stored: list[Event], size: int) -> None:
        fresh = [event for event in stored if event.seq > self._last_seq]
        if fresh:
            self._last_seq = fresh[-1].seq
            self._publish(fresh, size)

    async def _change(self) -> None:
        if self._changed is None:
            self._changed = anyio.Event()
        await self._changed.wait()

    def _wake(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None
