"""Reads a store's log once for all subscribers of this process, without a task of its own.

Of the waiting subscribers one leads: it waits for the store, reads what is new and offers it to the others. When it
leaves, another leads. So each event is read once for all of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio

from proctor.policies.events import Event
from proctor.policies.values.foreign_code import error_text, isolated

from ..errors import StoreError
from ..log import failure
from ..ports.store import EventLog, closing
from ..ports.stored_types import LogEntry
from ..run.tasks import calls_store, pass_on

if TYPE_CHECKING:
    from ..ports.adapter import Publisher


CAPACITY = 1024
CAPACITY_BYTES = 8 * 1024 * 1024


@dataclass(slots=True, eq=False, kw_only=True)
class Buffer:
    """The log entries for one subscriber, at most `capacity` of them and `CAPACITY_BYTES`.

    A full buffer drops everything and sets `overflowed`; its subscriber then reads the store. `gone` is the error if
    the store lost what may have been offered to it.
    """

    session_id: str | None = None
    run_id: str | None = None
    tenant: str | None = None
    capacity: int = CAPACITY
    overflowed: bool = False
    gone: StoreError | None = None
    come: anyio.Event = field(default_factory=anyio.Event)
    _entries: deque[LogEntry] = field(default_factory=deque)
    _size: int = 0

    def __bool__(self) -> bool:
        return bool(self._entries) or self.overflowed or self.gone is not None

    def check(self) -> None:
        """Raises StoreError if the store lost what may have been offered."""
        if self.gone is not None:
            raise self.gone

    def offer(self, entry: LogEntry) -> None:
        """Add an entry that matches the filter."""
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

    def pop(self) -> LogEntry | None:
        if not self._entries:
            return None
        entry = self._entries.popleft()
        self._size -= len(entry.data)
        return entry


LONGEST_WAIT_S = 1.0
"""The longest wait without a check for signals: a Ctrl-C just before it is noticed this late."""

PAUSE_S = 0.002
"""The shortest time between two reads of a busy store."""

KEPT = 4096
KEPT_BYTES = 32 * 1024 * 1024
"""How many events of this process, and bytes, are kept for the next read, so that they need not be decoded."""


async def log_after(store: EventLog, position: int, digest: bytes) -> AsyncGenerator[LogEntry]:
    """The entries after the one of this position and digest. Raises StoreError, also if that is there no more."""
    there = not position
    async with closing(store.log(after=max(position - 1, 0))) as entries:
        async for entry in entries:
            if entry.position > position:
                yield entry
            elif entry.digest != digest:
                break
            there = True
    if not there:
        raise StoreError("the store lacks what was read of it: an older copy took its place", kind="gone")


async def digest_at(store: EventLog, position: int) -> bytes:
    """The digest of the entry at a position; empty if there is none, or it was pruned."""
    if not position:
        return b""
    async with closing(store.log(after=position - 1)) as entries:
        async for entry in entries:
            return entry.digest if entry.position == position else b""
    return b""


class LogFollower:
    """Offers new entries of a store's log to buffers.

    # INVARIANT: every entry stored after a buffer has joined is offered to it, unless it overflowed.
    """

    def __init__(self, store: EventLog) -> None:
        self._store = store
        self._buffers: dict[str | None, set[Buffer]] = {}  # by session; None: of all
        self._position: int | None = None
        self._digest = b""
        self._token = 0
        self._leading: anyio.CancelScope | None = None
        self._waiting: dict[Buffer, None] = {}
        self._own: dict[tuple[str, int], Event] = {}
        self._own_bytes = 0
        self.closed = False

    @property
    def buffers(self) -> int:
        return sum(map(len, self._buffers.values()))

    async def join(self, buffer: Buffer) -> None:
        """Offer `buffer` everything that is stored after this returns."""
        if self._position is not None:
            await self._check_position(self._position, self._digest)
        self._buffers.setdefault(buffer.session_id, set()).add(buffer)
        if self._position is None:
            try:
                position, digest = await self._latest()
            except BaseException:
                self.leave(buffer)
                raise
            if self._position is None:
                self._position, self._digest = position, digest

    async def _check_position(self, position: int, digest: bytes) -> None:
        """Check that the store still has what was read of it: otherwise a new subscriber would miss events."""
        async with closing(log_after(self._store, position, digest)) as entries:
            try:
                await anext(entries, None)
            except StoreError as error:
                self._lose(error)

    def _lose(self, error: StoreError) -> None:
        """Fail all subscribers, as an older copy took the store's place. Raises any other error."""
        if error.kind != "gone":
            raise error
        for buffer in set().union(*self._buffers.values()):
            buffer.gone = error
            self.leave(buffer)

    async def _latest(self) -> tuple[int, bytes]:
        """The position of the latest entry, and its digest."""
        position = (await self._store.place()).position
        return position, await digest_at(self._store, position)

    def leave(self, buffer: Buffer) -> None:
        """Offer `buffer` nothing more, and wake its subscriber."""
        buffer.overflowed = True
        buffer.come.set()
        group = self._buffers.get(buffer.session_id, set())
        group.discard(buffer)
        if not group:
            self._buffers.pop(buffer.session_id, None)
        if not self._buffers:
            self._position = None
            self._own.clear()

    def publish(self, events: Sequence[Event], size: int) -> None:
        """Keep events that this process has just stored, so that the next read need not decode them."""
        if None in self._buffers or not self._buffers.keys().isdisjoint(event.session_id for event in events):
            self._own_bytes = self._own_bytes + size if self._own else size
            if len(self._own) + len(events) > KEPT or self._own_bytes > KEPT_BYTES:
                self._own.clear()
                self._own_bytes = size
            self._own |= {(event.session_id, event.seq): event for event in events}

    def close(self) -> None:
        """Wake all waiters permanently."""
        self.closed = True
        if self._leading is not None:
            self._leading.cancel()
        for buffer in self._waiting:
            buffer.come.set()

    @calls_store
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
                    try:
                        await self._read_new()
                    except StoreError as error:
                        self._lose(error)
                    self._token = token
                    await anyio.sleep(PAUSE_S)
            finally:
                self._leading = None

    async def _read_new(self) -> None:
        """Offer the log's entries after the last one read. Raises StoreError, also if that is no longer there."""
        if self._position is None:
            return
        async with closing(log_after(self._store, self._position, self._digest)) as entries:
            async for entry in entries:
                self._position, self._digest = entry.position, entry.digest
                entry.event = self._own.pop((entry.session_id, entry.seq), None)
                self._offer(entry)

    def _offer(self, entry: LogEntry) -> None:
        for session_id in (entry.session_id, None):
            for buffer in self._buffers.get(session_id, ()):
                buffer.offer(entry)


class Publishers:
    """Publishes what a supervisor stored: to its subscribers, then to its publishers.

    A publisher that raises is removed, logged and counted.
    """

    def __init__(self, follower: LogFollower, publishers: Sequence[Publisher], log: Any) -> None:
        self._follower = follower
        self._publishers = list(publishers)
        self._log = log
        self.dropped = 0

    def publish(self, events: list[Event], size: int) -> None:
        """Publish stored events, of about so many bytes, in order."""
        self._follower.publish(events, size)
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
