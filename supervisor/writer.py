"""Group commit of one run's record: what came while the last write was under way is written as one unit."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from proctor.policies.events import Event

from .commands import Append
from .errors import StoreError
from .ports import Store

BATCH = 512
"""The most units in one write; a unit is what one input to the machine recorded."""
ROOM = 1024
"""The most events that wait; a provider that reports faster is read no further until some are stored."""


class Writer:
    """Writes the events of one run in order, and hands over what was stored.

    `stored()` is called after each write; `durable` is then the last ticket that is durable.
    """

    __slots__ = (
        "_changed",
        "_publish",
        "_queue",
        "_size",
        "_store",
        "_stored",
        "durable",
        "failed",
        "failure",
        "idle",
        "last_seq",
    )

    def __init__(self, store: Store, *, stored: Callable[[], None], publish: Callable[[list[Event]], None]) -> None:
        self._store = store
        self._stored = stored
        self._publish = publish
        self._queue: list[Append] = []
        self._size = 0
        self._changed: anyio.Event | None = None
        self.failed: list[Event] = []
        self.failure: Exception | None = None
        self.idle = True
        self.durable = 0
        self.last_seq = 0

    def put(self, unit: Append) -> None:
        """Queue events to be stored."""
        if self.failure is not None:
            self.failed.extend(unit.events)
        else:
            self._queue.append(unit)
            self._size += len(unit.events)

    @property
    def full(self) -> bool:
        """Whether a producer should wait (see `room`)."""
        return self._size >= ROOM

    async def room(self) -> None:
        """Wait until there is room again."""
        while self.full:
            await self._change()

    async def drained(self) -> None:
        """Wait until nothing waits to be written, or nothing can be."""
        while self._queue or not self.idle:
            await self._change()

    async def flush(self) -> None:
        """Write until nothing is left. Raises what the store raised; what was not written is in `failed`."""
        self.idle = False
        try:
            while self._queue:
                await self._write()
        finally:
            self.idle = True
            self._wake()

    async def last_attempt(self) -> None:
        """After a failure: try once more to store everything, but for events the store cannot hold at all.

        Raises what the store raises.
        """
        failed, self.failed = self.failed, []
        if not failed:
            return
        try:
            self._hand_over(await self._store.append(failed))
        except StoreError as error:
            if error.kind != "bad_record":
                raise
            for event in failed:
                await self._try_one(event)

    async def _try_one(self, event: Event) -> None:
        try:
            self._hand_over(await self._store.append([event]))
        except StoreError as error:
            if error.kind != "bad_record":
                raise

    async def _write(self) -> None:
        units, self._queue = self._queue[:BATCH], self._queue[BATCH:]
        batch = [event for unit in units for event in unit.events]
        self._size -= len(batch)
        try:
            stored = await self._store.append(batch)
        except Exception as error:
            self.failure = error
            self.failed = [*batch, *(event for unit in self._queue for event in unit.events)]
            self._queue, self._size = [], 0
            raise
        self._hand_over(stored)
        self.durable = units[-1].ticket
        self._stored()
        self._wake()

    def _hand_over(self, stored: list[Event]) -> None:
        fresh = [event for event in stored if event.seq > self.last_seq]
        if fresh:
            self.last_seq = fresh[-1].seq
            self._publish(fresh)

    async def _change(self) -> None:
        if self._changed is None:
            self._changed = anyio.Event()
        await self._changed.wait()

    def _wake(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None
