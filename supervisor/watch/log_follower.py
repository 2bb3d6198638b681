"""One reader of a store's log for all who follow it in this process, and no task of its own.

Of those who wait one leads: it waits for the store, reads what is new once, and hands it to everybody it concerns.
When it leaves, another takes over. So what is stored costs one look, however many follow and whoever stored it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio

from proctor.policies.values.foreign_code import error_text, isolated

from ..log import failure
from ..ports.store import closing
from ..ports.stored_types import LogEntry
from ..run.tasks import pass_on

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from proctor.policies.events import Event

    from ..ports.adapter import Publisher
    from ..ports.store import EventLog


CAPACITY = 1024
CAPACITY_BYTES = 8 * 1024 * 1024


@dataclass(slots=True, eq=False, kw_only=True)
class Buffer:
    """Entries of one subscriber, within a bound of number and of bytes. What found no room is read from the store
    again: `overflowed` says that it has to be.
    """

    session_id: str | None = None
    run_id: str | None = None
    tenant: str | None = None
    capacity: int = CAPACITY
    overflowed: bool = False
    come: anyio.Event = field(default_factory=anyio.Event)
    _entries: deque[LogEntry] = field(default_factory=deque)
    _size: int = 0

    def __bool__(self) -> bool:
        return bool(self._entries) or self.overflowed

    def offer(self, entry: LogEntry) -> None:
        """Take an entry, if it is wanted here."""
        if self.overflowed or (self.run_id or entry.run_id) != entry.run_id:
            return
        if self.tenant is not None and self.tenant != entry.tenant:
            return
        self._size += len(entry.data)
        if len(self._entries) >= self.capacity or self._size > CAPACITY_BYTES:
            self._entries.clear()
            self._size = 0
            self.overflowed = True
        else:
            self._entries.append(entry)
        self.come.set()

    def take(self) -> LogEntry | None:
        """The next entry, if there is one."""
        if not self._entries:
            return None
        entry = self._entries.popleft()
        self._size -= len(entry.data)
        return entry


LONGEST_WAIT_S = 1.0
"""A program that only follows ends this late at most where its Ctrl-C comes just before it begins to wait."""

PAUSE_S = 0.002
"""The least time between two looks at a busy store."""

KEPT = 4096
"""The most events of this process that are kept for the next look, so that they need not be decoded."""


class LogFollower:
    """Hands entries of the log to buffers.

    # INVARIANT: what is stored after a buffer has joined is offered to it, unless it overflowed.
    """

    def __init__(self, store: EventLog) -> None:
        self._store = store
        self._of_session: dict[str, set[Buffer]] = {}
        self._of_all: set[Buffer] = set()
        self._position: int | None = None
        self._token = 0
        self._leading: anyio.CancelScope | None = None
        self._waiting: dict[Buffer, None] = {}
        self._own: dict[tuple[str, int], Event] = {}
        self.closed = False

    @property
    def buffers(self) -> int:
        """How many follow."""
        return len(self._of_all) + sum(map(len, self._of_session.values()))

    async def join(self, buffer: Buffer) -> None:
        """From when this returns, `buffer` is offered what is stored."""
        self._group(buffer).add(buffer)
        if self._position is None:
            try:
                position = (await self._store.place()).position
            except BaseException:
                self.leave(buffer)
                raise
            if self._position is None:
                self._position = position

    def leave(self, buffer: Buffer) -> None:
        """Offer it nothing more."""
        group = self._group(buffer)
        group.discard(buffer)
        if buffer.session_id is not None and not group:
            self._of_session.pop(buffer.session_id, None)
        if not self.buffers:
            self._position = None
            self._own.clear()

    def publish(self, events: Sequence[Event]) -> None:
        """Keep events that this process has just stored, for those that get them at the next look."""
        if self._of_all or not self._of_session.keys().isdisjoint(event.session_id for event in events):
            if len(self._own) + len(events) > KEPT:
                self._own.clear()
            self._own |= {(event.session_id, event.seq): event for event in events}

    def close(self) -> None:
        """No follower waits any more."""
        self.closed = True
        if self._leading is not None:
            self._leading.cancel()
        for buffer in self._waiting:
            buffer.come.set()

    async def wait_for_more(self, buffer: Buffer) -> None:
        """Return when something was offered to `buffer`, or it is closed. Raises StoreError."""
        try:
            while not buffer and not self.closed:
                if self._leading is None:
                    await self._lead()
                else:
                    buffer.come = anyio.Event()
                    self._waiting[buffer] = None
                    await buffer.come.wait()
        finally:
            self._waiting.pop(buffer, None)
            if self._leading is None and self._waiting:
                next(iter(self._waiting)).come.set()

    async def _lead(self) -> None:
        with anyio.CancelScope() as self._leading:
            try:
                token = await self._store.wait(self._token, LONGEST_WAIT_S)
                if token != self._token:
                    await self._read_new()
                    self._token = token
                    await anyio.sleep(PAUSE_S)
            finally:
                self._leading = None

    async def _read_new(self) -> None:
        """Offer what the log has beyond the place that was read to."""
        if self._position is None:
            return
        async with closing(self._store.log(after=self._position)) as entries:
            async for entry in entries:
                self._position = entry.position
                entry.event = self._own.pop((entry.session_id, entry.seq), None)
                self._offer(entry)

    def _offer(self, entry: LogEntry) -> None:
        for buffer in self._of_session.get(entry.session_id, ()):
            buffer.offer(entry)
        for buffer in self._of_all:
            buffer.offer(entry)

    def _group(self, buffer: Buffer) -> set[Buffer]:
        if buffer.session_id is None:
            return self._of_all
        return self._of_session.setdefault(buffer.session_id, set())


class Publishers:
    """Publishes what a supervisor stored: to its own subscribers, then to its observers. An observer that raises is
    dropped, reported and counted.
    """

    def __init__(self, follower: LogFollower, publishers: Sequence[Publisher], log: Any) -> None:
        self._follower = follower
        self._publishers = list(publishers)
        self._log = log
        self.dropped = 0

    def publish(self, events: list[Event]) -> None:
        """Publish stored events, in order."""
        self._follower.publish(events)
        for publisher in list(self._publishers):
            try:
                for event in events:
                    isolated(publisher, event)
            except Exception as error:
                self._publishers = [one for one in self._publishers if one is not publisher]
                self.dropped += 1
                self._log.error("publisher.dropped", publisher=error_text(publisher), **failure(error))
            except BaseException as ctrl_c:  # it hit while this observer was called
                pass_on(ctrl_c)
