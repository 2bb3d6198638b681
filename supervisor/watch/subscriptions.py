"""Watching events: what is stored already, then what comes, with neither gap nor duplicate.

One session is followed through the store, so it does not matter which process runs it. Of all sessions, those
that this supervisor runs come through a bounded buffer for each subscriber; what it has no room for, and what
other processes store, is read from the store. Nobody waits for a subscriber.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType

import anyio

from proctor.policies.stream.events import TERMINAL, Event

from ..arguments import check_cursor, check_named
from ..errors import StoreError, UsageError
from ..ports import Store
from .elsewhere import Elsewhere

LOOK_AGAIN_S = 0.5
"""How often a follower asks whether it should stop."""
BUFFER = 1024


async def follow(
    store: Store,
    session_id: str,
    *,
    after: int = 0,
    run_id: str | None = None,
    closed: Callable[[], bool] = lambda: False,
) -> AsyncIterator[Event]:
    """The events of a session with seq > after, as they are stored, until `closed` or the run's end."""
    token, quiet = 0, False
    while True:
        over = closed() or (quiet and run_id is not None and await _ended(store, run_id))
        token = await store.wait(token, 0.0 if over else LOOK_AGAIN_S)
        quiet = True
        async with _closing(store.read(session_id, after=after, run_id=run_id)) as stored:
            async for event in stored:  # always read to its end
                after, quiet = event.seq, False
                yield event
                over = over or (run_id is not None and isinstance(event, TERMINAL))
        if over:
            return


@asynccontextmanager
async def _closing(events: AsyncIterator[Event]) -> AsyncIterator[AsyncIterator[Event]]:
    """Events that are closed when their reader leaves early: trio complains of generators that are not."""
    try:
        yield events
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()


async def _ended(store: Store, run_id: str) -> bool:
    """Whether a run's end is stored: a follower that begins behind it never sees it come."""
    run = await store.run(run_id)
    return run is not None and run.status not in ("created", "running")


class Subscriptions:
    """Hands events to subscribers of all sessions."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._subscribers: list[_Buffer] = []
        self._own: set[str] = set()
        self.closed = False

    @property
    def subscribers(self) -> int:
        """How many listen."""
        return len(self._subscribers)

    def publish(self, events: list[Event]) -> None:
        """Hand over events that were just stored."""
        for event in events:
            if isinstance(event, TERMINAL):
                self._own.discard(event.run_id)
            else:
                self._own.add(event.run_id)
        for subscriber in self._subscribers:
            subscriber.offer(events)

    def close(self) -> None:
        """Let every subscriber end, after what it still has to see."""
        self.closed = True
        for subscriber in self._subscribers:
            subscriber.come.set()

    def subscribe(self, *, session_id: str | None = None, run_id: str | None = None, after: int = 0) -> Subscription:
        """What `Supervisor.subscribe` gives. Entering raises UsageError for a run or a place there is not."""
        if session_id is None and run_id is None and after == 0:
            return self.listen()
        return Subscription(self._following(session_id, run_id, after))

    def listen(self, size: int = BUFFER) -> Subscription:
        """All events of the store from the moment it is entered, in the order of each session."""
        return Subscription(self._listening(size))

    @asynccontextmanager
    async def _following(
        self, session_id: str | None, run_id: str | None, after: int
    ) -> AsyncGenerator[AsyncIterator[Event]]:
        check_cursor(after)
        check_named(session_id=session_id)
        if run_id is not None:
            run = await self._store.run(run_id)
            if run is None or session_id not in (None, run.session_id):
                where = f" in session `{session_id}`" if session_id else ""
                raise UsageError(f"there is no run `{run_id}`{where}")
            session_id = run.session_id
        if session_id is None:
            raise UsageError("`after` counts within one session; say which, with session_id or run_id")
        events = follow(self._store, session_id, after=after, run_id=run_id, closed=lambda: self.closed)
        async with _closing(events) as followed:
            yield followed

    @asynccontextmanager
    async def _listening(self, size: int) -> AsyncGenerator[AsyncIterator[Event]]:
        buffer = _Buffer(size)
        self._subscribers.append(buffer)
        try:
            elsewhere = Elsewhere(self._store, self._own)
            read_to = await elsewhere.begin()
            async with _closing(self._heard(buffer, elsewhere, read_to)) as events:
                yield events
        finally:
            self._subscribers.remove(buffer)

    async def _heard(self, buffer: _Buffer, elsewhere: Elsewhere, read_to: dict[str, int]) -> AsyncIterator[Event]:
        token, over = 0, False
        while not (over and buffer.empty):
            over = self.closed
            events, missed = buffer.take()
            news = await elsewhere.news(read_to)
            read_to |= news  # an own run may follow another process's in the same session
            for event in events:
                place = read_to.get(event.session_id, event.seq - 1)
                if event.seq == place + 1:
                    read_to[event.session_id] = event.seq
                    if isinstance(event, TERMINAL):
                        elsewhere.over(event.run_id)
                    yield event
                elif event.seq > place:  # another process wrote in between
                    missed.setdefault(event.session_id, place)
            for session_id, before in (missed | news).items():
                async with _closing(self._store.read(session_id, after=read_to.get(session_id, before))) as stored:
                    async for event in stored:
                        read_to[session_id] = event.seq
                        if isinstance(event, TERMINAL):
                            elsewhere.over(event.run_id)
                        yield event
            if not self.closed and buffer.empty:
                token = await self._woken(buffer, token)

    async def _woken(self, buffer: _Buffer, token: int) -> int:
        """Return when something was handed over or stored; the token is for the next time."""
        failed: StoreError | None = None
        async with anyio.create_task_group() as tasks:

            async def handed() -> None:
                await buffer.wait()
                tasks.cancel_scope.cancel()

            tasks.start_soon(handed)
            try:
                before = token
                while token == before:
                    token = await self._store.wait(token, LOOK_AGAIN_S)
            except StoreError as error:
                failed = error  # raised outside, where no group is made of it
            tasks.cancel_scope.cancel()
        if failed is not None:
            raise failed
        return token


class Subscription:
    """Events for one subscriber. `async with` gives them, and closes what they come from however it is left.

    Iterated without being entered, it begins with the first event asked for, and closes at the end.
    """

    __slots__ = ("_events", "_source")

    def __init__(self, source: AbstractAsyncContextManager[AsyncIterator[Event]]) -> None:
        self._source = source
        self._events: AsyncIterator[Event] | None = None

    async def __aenter__(self) -> AsyncIterator[Event]:
        self._events = await self._source.__aenter__()
        return self._events

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._source.__aexit__(kind, error, trace)

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        events = await self.__aenter__() if self._events is None else self._events
        try:
            return await anext(events)
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Close what the events come from."""
        if self._events is not None:
            await self._source.__aexit__(None, None, None)


class _Buffer:
    """What one subscriber has not taken yet; what found no room is known by session and place."""

    __slots__ = ("_events", "_missed", "_size", "come")

    def __init__(self, size: int) -> None:
        self._events: deque[Event] = deque()
        self._missed: dict[str, int] = {}
        self._size = size
        self.come = anyio.Event()

    def offer(self, events: list[Event]) -> None:
        for event in events:
            if event.session_id in self._missed or len(self._events) >= self._size:
                self._missed.setdefault(event.session_id, event.seq - 1)
            else:
                self._events.append(event)
        self.come.set()

    @property
    def empty(self) -> bool:
        return not self._events and not self._missed

    def take(self) -> tuple[deque[Event], dict[str, int]]:
        """What there is now; what comes while it is handed on is for the next time."""
        events, self._events = self._events, deque()
        missed, self._missed = self._missed, {}
        return events, missed

    async def wait(self) -> None:
        if self.empty:
            self.come = anyio.Event()
            await self.come.wait()
