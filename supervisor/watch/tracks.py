"""Where a subscriber is in what it follows: one session by `seq`, or the log of the store by position."""

from __future__ import annotations

from typing import Protocol, TypeAlias

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


class Track(Protocol):
    """What is followed, and how far it has been handed over."""

    @property
    def session_id(self) -> str | None: ...

    @property
    def run_id(self) -> str | None: ...

    @property
    def cursor(self) -> int | str: ...

    async def begin(self) -> None:
        """Find where to begin. Raises UsageError for a run or a place there is not."""
        ...

    async def page(self) -> list[Placed]:
        """The next stored events; none where there are no more."""
        ...

    def taken(self, entry: LogEntry) -> Placed | None:
        """What an entry of the log is here; None for what was handed over before."""
        ...

    def passed(self, place: int) -> None:
        """So far has been handed over."""
        ...

    async def ended(self) -> bool:
        """Whether nothing more is to come."""
        ...

    def ends_with(self, event: Event) -> bool:
        """Whether nothing comes after this event."""
        ...


class SessionTrack:
    """One session, or one run of it until its end."""

    def __init__(self, store: Store, session_id: str | None, run_id: str | None, after: object) -> None:
        self.session_id = session_id
        self.run_id = run_id
        self._store = store
        self._after = after
        self._seq = 0

    @property
    def cursor(self) -> int | str:
        """The `seq` of the last event."""
        return self._seq

    async def begin(self) -> None:
        """See `Track.begin`."""
        check_cursor(self._after)
        assert isinstance(self._after, int)
        self._seq = self._after
        if self.run_id is None:
            return
        run = await self._store.run(self.run_id)
        if run is None or self.session_id not in (None, run.session_id):
            where = f" in session `{self.session_id}`" if self.session_id else ""
            raise UsageError(f"there is no run `{self.run_id}`{where}")
        self.session_id = run.session_id

    async def page(self) -> list[Placed]:
        """See `Track.page`."""
        assert self.session_id is not None
        found: list[Placed] = []
        async with closing(self._store.read(self.session_id, after=self._seq, run_id=self.run_id)) as events:
            async for event in events:
                found.append((event.seq, event))
                if len(found) == _PAGE:
                    break
        return found

    def taken(self, entry: LogEntry) -> Placed | None:
        """See `Track.taken`."""
        return (entry.seq, event_of(entry)) if entry.seq > self._seq else None

    def passed(self, place: int) -> None:
        """See `Track.passed`."""
        self._seq = place

    async def ended(self) -> bool:
        """A run that is over, or not there any more."""
        if self.run_id is None:
            return False
        run = await self._store.run(self.run_id)
        return run is None or run.status not in GOING_ON

    def ends_with(self, event: Event) -> bool:
        """A run's terminal event."""
        return self.run_id is not None and isinstance(event, TERMINAL)


class LogTrack:
    """Everything in the store, or all of one tenant."""

    session_id: str | None = None
    run_id: str | None = None

    def __init__(self, store: Store, tenant: str | None, after: object) -> None:
        self._store = store
        self._tenant = tenant
        self._after = after
        self._place = Place(store_id="", position=0)

    @property
    def cursor(self) -> int | str:
        """The place of the last event, as text."""
        return str(self._place)

    async def begin(self) -> None:
        """See `Track.begin`."""
        now = await self._store.place()
        self._place = Place(store_id=now.store_id, position=_position(self._after, now))

    async def page(self) -> list[Placed]:
        """See `Track.page`."""
        found: list[Placed] = []
        async with closing(self._store.log(after=self._place.position, tenant=self._tenant)) as entries:
            async for entry in entries:
                found.append((entry.position, event_of(entry)))
                if len(found) == _PAGE:
                    break
        return found

    def taken(self, entry: LogEntry) -> Placed | None:
        """See `Track.taken`."""
        return (entry.position, event_of(entry)) if entry.position > self._place.position else None

    def passed(self, place: int) -> None:
        """See `Track.passed`."""
        self._place = Place(store_id=self._place.store_id, position=place)

    async def ended(self) -> bool:
        """It goes on for ever."""
        return False

    def ends_with(self, event: Event) -> bool:
        """It goes on for ever."""
        return False


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
