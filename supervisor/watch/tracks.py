"""Where a subscriber is in what it follows: one session by `seq`, or the log of the store by position."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import Any, TypeAlias

from proctor.policies.stream.events import TERMINAL, Event

from ..arguments import check_cursor
from ..errors import UsageError
from ..ports.adapters import LogEntry, Place, Store
from ..ports.facts import GOING_ON
from ..store.codec import event_of
from ..store.paging import closing

START = "start"
"""The cursor before everything that is stored."""
_PAGE = 256

Placed: TypeAlias = tuple[int, Event]
"""An event, with its place on the track."""


class Track(ABC):
    """What is followed, and how far it has been handed over: `place` is that of the last event."""

    session_id: str | None = None
    run_id: str | None = None

    def __init__(self, store: Store, after: object) -> None:
        self._store = store
        self._after = after
        self._place = 0

    @property
    def cursor(self) -> int | str:
        """The place of the last event, as `after` takes it."""
        return self._place

    @abstractmethod
    async def begin(self) -> None:
        """Find where to begin. Raises UsageError for a run or a place there is not."""

    @abstractmethod
    def _stored(self) -> AsyncIterator[Any]:
        """What is stored beyond the place."""

    @abstractmethod
    def _placed(self, stored: Any) -> Placed:
        """Something stored, with its place here."""

    @abstractmethod
    def taken(self, entry: LogEntry) -> Placed | None:
        """What an entry of the log is here; None for what was handed over before."""

    async def page(self) -> list[Placed]:
        """The next stored events; none where there are no more."""
        found: list[Placed] = []
        async with closing(self._stored()) as stored:
            async for one in stored:
                found.append(self._placed(one))
                if len(found) == _PAGE:
                    break
        return found

    def passed(self, place: int) -> None:
        """So far has been handed over."""
        self._place = place

    async def ended(self) -> bool:
        """Whether nothing more is to come."""
        return False

    def ends_with(self, event: Event) -> bool:
        """Whether nothing comes after this event."""
        return False


class SessionTrack(Track):
    """One session, or one run of it until its end."""

    def __init__(self, store: Store, session_id: str | None, run_id: str | None, after: object) -> None:
        super().__init__(store, after)
        self.session_id = session_id
        self.run_id = run_id

    async def begin(self) -> None:
        after = 0 if self._after == START else self._after
        check_cursor(after)
        assert isinstance(after, int)
        self._place = after
        if self.run_id is None:
            return
        run = await self._store.run(self.run_id)
        if run is None or self.session_id not in (None, run.session_id):
            where = f" in session `{self.session_id}`" if self.session_id else ""
            raise UsageError(f"there is no run `{self.run_id}`{where}")
        self.session_id = run.session_id

    def _stored(self) -> AsyncIterator[Event]:
        assert self.session_id is not None
        return self._store.read(self.session_id, after=self._place, run_id=self.run_id)

    def _placed(self, stored: Event) -> Placed:
        return stored.seq, stored

    def taken(self, entry: LogEntry) -> Placed | None:
        return self._placed(event_of(entry)) if entry.seq > self._place else None

    async def ended(self) -> bool:
        if self.run_id is None:
            return False
        run = await self._store.run(self.run_id)
        return run is None or run.status not in GOING_ON

    def ends_with(self, event: Event) -> bool:
        return self.run_id is not None and isinstance(event, TERMINAL)


class LogTrack(Track):
    """Everything in the store, or all of one tenant: it goes on for ever."""

    def __init__(self, store: Store, tenant: str | None, after: object) -> None:
        super().__init__(store, after)
        self._tenant = tenant
        self._store_id = ""

    @property
    def cursor(self) -> int | str:
        return str(Place(store_id=self._store_id, position=self._place))

    async def begin(self) -> None:
        now = await self._store.place()
        self._store_id, self._place = now.store_id, _position(self._after, now)

    def _stored(self) -> AsyncIterator[LogEntry]:
        return self._store.log(after=self._place, tenant=self._tenant)

    def _placed(self, stored: LogEntry) -> Placed:
        return stored.position, event_of(stored)

    def taken(self, entry: LogEntry) -> Placed | None:
        return self._placed(entry) if entry.position > self._place else None


def _position(after: object, now: Place) -> int:
    """Where a cursor stands. Raises UsageError for a cursor of another store."""
    if after == 0 and not isinstance(after, bool):
        return now.position
    if after == START:
        return 0
    if not isinstance(after, str):
        raise UsageError(
            "a number in `after` counts within one session: name it, or give the `cursor` of a subscription"
        )
    store_id, _, position = after.rpartition(".")
    if not (store_id and position.isascii() and position.isdigit()):
        raise UsageError(f"`after` is `{after}`; it is the `cursor` of a subscription, or `{START}`")
    if store_id != now.store_id:
        raise UsageError(f"`after` is `{after}`, a cursor of another store; this one begins at `{START}`")
    if int(position) > now.position:
        raise UsageError(f"`after` is `{after}`, but the store ends at {now.position}: it is an older copy")
    return int(position)
