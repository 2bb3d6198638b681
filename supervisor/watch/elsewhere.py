"""Runs that other processes own: found through the store, for one who watches everything."""

from __future__ import annotations

from collections.abc import Container

from ..ports import RunInfo, Store

_PAGE = 100
_GOING_ON = ("created", "running")


class Elsewhere:
    """Knows which runs of the store go on. Those in `own` are heard of without it."""

    def __init__(self, store: Store, own: Container[str]) -> None:
        self._store = store
        self._own = own
        self._newest: str | None = None
        self._going_on: dict[str, str] = {}

    async def begin(self) -> dict[str, int]:
        """The last seq of each session with a run that goes on: what comes after it is news."""
        places: dict[str, int] = {}
        for run in await self._newer():
            if run.status in _GOING_ON:
                places[run.session_id] = await self._store.last_seq(run.session_id)
                now = await self._store.run(run.run_id)
                if now is not None and now.status in _GOING_ON:
                    self._going_on[run.run_id] = run.session_id
        return places

    async def news(self, read_to: dict[str, int]) -> dict[str, int]:
        """Sessions with events after the place where they are read to, and that place."""
        looked_at = dict(self._going_on)
        for run in await self._newer():
            looked_at[run.run_id] = run.session_id
            if run.status in _GOING_ON:
                self._going_on[run.run_id] = run.session_id
        found: dict[str, int] = {}
        for run_id, session_id in looked_at.items():
            if run_id in self._own:
                continue
            place = read_to.get(session_id)
            if place is None:
                place = await self._before(run_id, session_id)
            if place is not None and await self._store.last_seq(session_id) > place:
                found[session_id] = min(place, found.get(session_id, place))
        return found

    def over(self, run_id: str) -> None:
        """The run's end was seen."""
        self._going_on.pop(run_id, None)

    async def _before(self, run_id: str, session_id: str) -> int | None:
        """The place before a run's first event: the runs before it were over when the watch began."""
        events = self._store.read(session_id, run_id=run_id)
        place = None
        async for event in events:  # always read to its end: a store's reader may have something open
            place = event.seq - 1 if place is None else place
        return place

    async def _newer(self) -> list[RunInfo]:
        """The runs that were not seen before, oldest first."""
        found: list[RunInfo] = []
        page = await self._store.runs(limit=_PAGE)
        while page:
            for run in page:
                if run.run_id == self._newest:
                    page = []
                    break
                found.append(run)
            if page:
                page = await self._store.runs(limit=_PAGE, before=page[-1].run_id)
        if found:
            self._newest = found[0].run_id
        return found[::-1]
