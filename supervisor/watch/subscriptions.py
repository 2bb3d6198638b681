"""Subscriptions to events: the stored ones, then new ones, without gap or duplicate.

A subscriber reads the store after its own position, then takes what the process's `LogFollower` offers; if it was too
slow for that, it reads the store again. So runs of other processes are followed too, and no run waits for a
subscriber.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple

from proctor.policies.events import EVENT_TYPES, TERMINAL, Event
from proctor.policies.reading.schema import did_you_mean

from ..arguments import check_cursor, check_named
from ..errors import StoreError, UsageError
from ..ports.store import Store, closing
from ..ports.stored_types import GOING_ON, LogEntry, LogPosition
from ..run.tasks import calls_store
from ..store.records import event_of
from .log_follower import CAPACITY, Buffer, LogFollower, digest_at, log_after

START = "start"
"""The cursor before the first stored event."""
NOW = "now"
"""The cursor after the last event that is stored when a subscription is entered."""

_PAGE = 256
_DIGITS = 19
"""How many digits the position in a cursor may have: a store has none with more."""


class Positioned(NamedTuple):
    """An event with its position, and its digest where that is known."""

    position: int
    event: Event
    digest: bytes = b""


class EventCursor(ABC):
    """The runs being followed, and the `position` of the last delivered event."""

    session_id: str | None = None
    run_id: str | None = None

    def __init__(self, store: Store, after: object) -> None:
        self._store = store
        self._after = after
        self._position = 0
        self._digest = b""

    @property
    def cursor(self) -> int | str:
        """The position of the last event, to pass as `after`."""
        return self._position

    @abstractmethod
    async def begin(self) -> None:
        """Find the position to start from. Raises UsageError for a run or a position that does not exist."""

    @abstractmethod
    def _stored(self) -> AsyncIterator[Any]:
        """What is stored after the position."""

    @abstractmethod
    def _positioned(self, stored: Any) -> Positioned:
        """A stored item as an event with its position."""

    @abstractmethod
    def new_event(self, entry: LogEntry) -> Positioned | None:
        """The event of a log entry; None if it was delivered before."""

    async def page(self) -> list[Positioned]:
        """The next stored events; none if there are no more."""
        found: list[Positioned] = []
        async with closing(self._stored()) as stored:
            async for one in stored:
                try:
                    found.append(self._positioned(one))
                except StoreError:
                    if found:
                        break  # what precedes it comes first
                    self.advance(one.position)  # whoever continues from the cursor continues behind it
                    raise
                if len(found) == _PAGE:
                    break
        return found

    def advance(self, position: int, digest: bytes = b"") -> None:
        """Note that everything up to this position was delivered."""
        self._position, self._digest = position, digest

    async def ended(self) -> bool:
        """Whether no more events will come. Raises StoreError for a run that was pruned."""
        return False

    def ends_with(self, event: Event) -> bool:
        """Whether no event comes after this one."""
        return False


class SessionCursor(EventCursor):
    """One session, or one run of it until the run ends."""

    def __init__(self, store: Store, session_id: str | None, run_id: str | None, after: object) -> None:
        super().__init__(store, after)
        self.session_id = session_id
        self.run_id = run_id

    async def begin(self) -> None:
        after = 0 if self._after in (START, NOW) else self._after
        check_cursor(after)
        assert isinstance(after, int)
        self._position = after
        if self.run_id is not None:
            run = await self._store.run(self.run_id)
            if run is None or self.session_id not in (None, run.session_id):
                where = f" in session `{self.session_id}`" if self.session_id else ""
                raise UsageError(f"there is no run `{self.run_id}`{where}")
            self.session_id = run.session_id
        if self._after == START or not self._after:
            return
        assert self.session_id is not None
        last = await self._store.last_seq(self.session_id)
        if after > last:
            raise UsageError(f"`after` is {after}, but session `{self.session_id}` ends at {last}")
        self._position = last if self._after == NOW else after

    def _stored(self) -> AsyncIterator[Event]:
        assert self.session_id is not None
        return self._store.read(self.session_id, after=self._position, run_id=self.run_id)

    def _positioned(self, stored: Event) -> Positioned:
        return Positioned(stored.seq, stored)

    def new_event(self, entry: LogEntry) -> Positioned | None:
        return self._positioned(event_of(entry)) if entry.seq > self._position else None

    async def ended(self) -> bool:
        if self.run_id is None:
            return False
        run = await self._store.run(self.run_id)
        if run is None:
            raise StoreError(f"run `{self.run_id}` was pruned before all its events were read", kind="no_run")
        return run.status not in GOING_ON

    def ends_with(self, event: Event) -> bool:
        return self.run_id is not None and isinstance(event, TERMINAL)


class LogCursor(EventCursor):
    """The whole store, or one tenant's runs; it never ends."""

    def __init__(self, store: Store, tenant: str | None, after: object) -> None:
        super().__init__(store, after)
        self._tenant = tenant
        self._store_id = ""

    @property
    def cursor(self) -> int | str:
        return str(LogPosition(store_id=self._store_id, position=self._position, digest=self._digest))

    async def begin(self) -> None:
        now = await self._store.place()
        self._store_id = now.store_id
        position, seen = _position(self._after, now)
        digest = await digest_at(self._store, position)
        if digest and not digest.hex().startswith(seen):
            raise UsageError(f"`after` is `{self._after}`, but the store has another event there: {_OLDER}")
        self.advance(position, digest)

    def _stored(self) -> AsyncIterator[LogEntry]:
        if self._digest and self._tenant is None:
            return log_after(self._store, self._position, self._digest)
        return self._store.log(after=self._position, tenant=self._tenant)

    def _positioned(self, stored: LogEntry) -> Positioned:
        return Positioned(stored.position, event_of(stored), stored.digest)

    def new_event(self, entry: LogEntry) -> Positioned | None:
        if entry.position <= self._position:
            return None
        try:
            return self._positioned(entry)
        except StoreError:
            self.advance(entry.position)
            raise


_OLDER = "it is an older copy"


def _position(after: object, now: LogPosition) -> tuple[int, str]:
    """The position that a cursor names, and how the digest of the event there begins, in hex. Raises UsageError for a
    cursor of another store.
    """
    if after == NOW:
        return now.position, ""
    if after == START or (after == 0 and not isinstance(after, bool)):
        return 0, ""
    if not isinstance(after, str):
        raise UsageError(
            "a number in `after` counts within one session: name it, or give the `cursor` of a subscription"
        )
    store_id, _, place = after.rpartition(".")
    position, _, digest = place.partition("-")
    if not (store_id and position.isascii() and position.isdigit() and len(position) <= _DIGITS):
        raise UsageError(f"`after` is `{after}`; it is the `cursor` of a subscription, `{START}` or `{NOW}`")
    if store_id != now.store_id:
        raise UsageError(f"`after` is `{after}`, a cursor of another store; this one begins at `{START}`")
    if int(position) > now.position:
        raise UsageError(f"`after` is `{after}`, but the store ends at {now.position}: {_OLDER}")
    return int(position), digest


class Subscriptions:
    """Creates subscriptions to one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.follower = LogFollower(store)

    @property
    def subscribers(self) -> int:
        """How many subscriptions are open."""
        return self.follower.buffers

    def close(self) -> None:
        """End every subscription after what is stored now."""
        self.follower.close()

    def subscribe(
        self,
        *,
        session_id: str | None = None,
        run_id: str | None = None,
        tenant: str | None = None,
        after: int | str = 0,
        types: Sequence[str] | None = None,
        capacity: int = CAPACITY,
    ) -> Subscription:
        """See `Supervisor.subscribe`. Raises UsageError for arguments that do not go together."""
        check_named(session_id=session_id, run_id=run_id, tenant=tenant)
        wanted = None if types is None else event_types(types)
        if tenant is not None and (session_id is not None or run_id is not None):
            raise UsageError("a tenant's events are those of all its sessions: name a tenant, or a session or a run")
        cursor: EventCursor
        if session_id is None and run_id is None:
            cursor = LogCursor(self._store, tenant, after)
        else:
            cursor = SessionCursor(self._store, session_id, run_id, after)
        return Subscription(self.follower, cursor, tenant, capacity, wanted)


def event_types(given: object) -> frozenset[str]:
    """The event types to deliver. Raises UsageError for one that does not exist."""
    if isinstance(given, str) or not isinstance(given, Collection) or not given:
        raise UsageError("`types` is a list of types of events, for example `types=['policy_violation']`")
    for name in given:
        if not isinstance(name, str) or name not in EVENT_TYPES:
            hint = did_you_mean(str(name), EVENT_TYPES) or f"there are {', '.join(EVENT_TYPES)}"
            raise UsageError(f"`types` names `{name}`, which is no type of event; {hint}")
    return frozenset(given)


@dataclass(slots=True, eq=False, repr=False)
class Subscription:
    """The events for one subscriber. Use `async with`, which also closes it.

    Without `async with`, it starts with the first iteration and closes at its end.
    """

    _follower: LogFollower
    _cursor: EventCursor
    _tenant: str | None
    _capacity: int
    _types: frozenset[str] | None
    _buffer: Buffer | None = field(default=None, init=False)
    _page: list[Positioned] = field(default_factory=list, init=False)
    _behind: bool = field(default=True, init=False)
    _over: bool = field(default=False, init=False)
    _is_read: bool = field(default=False, init=False)

    @property
    def cursor(self) -> int | str:
        """The position after the last delivered event. Pass it as `after` to continue from there, in any process and
        at any time. For a session or a run it is a `seq`, else a text that is valid in this store.
        """
        return self._cursor.cursor

    @calls_store
    async def __aenter__(self) -> Subscription:
        if self._buffer is None:
            await self._cursor.begin()
            cursor = self._cursor
            buffer = Buffer(
                session_id=cursor.session_id, run_id=cursor.run_id, tenant=self._tenant, capacity=self._capacity
            )
            await self._follower.join(buffer)
            self._buffer = buffer
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Event:
        if self._is_read:
            raise UsageError("a subscription is read by one task at a time; open another one")
        self._is_read = True
        try:
            await self.__aenter__()
            while True:
                event = await self._next()
                if self._types is None or event.type in self._types:
                    return event
        except BaseException:
            await self.aclose()
            raise
        finally:
            self._is_read = False

    async def aclose(self) -> None:
        """Close the subscription."""
        if self._buffer is not None:
            self._follower.leave(self._buffer)
            self._over = True

    async def _next(self) -> Event:
        """The next event: stored ones, until the buffer continues where they end. Raises StopAsyncIteration."""
        assert self._buffer is not None
        while not self._over:
            if self._page:
                return self._delivered(self._page.pop())
            if self._behind:
                self._buffer.check()
                await self._catch_up(self._buffer)
            elif (entry := self._buffer.pop()) is not None:
                positioned = self._cursor.new_event(entry)
                if positioned is not None:
                    return self._delivered(positioned)
            elif self._buffer.overflowed or self._follower.closed:
                self._behind = True
            else:
                await self._follower.wait_for_more(self._buffer)
        raise StopAsyncIteration

    @calls_store
    async def _catch_up(self, buffer: Buffer) -> None:
        """Read the store after the position until nothing is left; then the buffer continues, which was offered
        entries from before the last read.
        """
        closed, buffer.overflowed = self._follower.closed, False
        page = await self._cursor.page()
        if not page and not closed and await self._cursor.ended():
            closed, page = True, await self._cursor.page()  # its end may have been stored after the first look
        self._page = page[::-1]
        if not page:
            self._behind = False
            self._over = closed

    def _delivered(self, positioned: Positioned) -> Event:
        self._cursor.advance(positioned.position, positioned.digest)
        self._over = self._over or self._cursor.ends_with(positioned.event)
        return positioned.event
