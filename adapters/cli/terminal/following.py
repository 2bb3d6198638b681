"""New events of many sessions, whatever process writes them."""

from __future__ import annotations

from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from proctor.policies.stream.events import TERMINAL, Event
from proctor.supervisor.store.paging import all_runs

if TYPE_CHECKING:
    from proctor.supervisor.ports import RunInfo, Store

RECENT = 100
"""What is past is told of so many newest runs, and of all that go on."""
_NO_TIME = datetime.min.replace(tzinfo=UTC)


class Follower:
    """Reads what was stored since it last looked; with `only`, of one run."""

    def __init__(self, store: Store, only: RunInfo | None = None) -> None:
        self._store = store
        self._only = only
        self._newest: str | None = None
        self._read_to: dict[str, int] = {}
        self.over = False

    async def new(self) -> list[Event]:
        """The events since last asked, by time; those of one session keep their order."""
        if self._only is not None:
            self._read_to.setdefault(self._only.session_id, 0)
        else:
            await self._take_up_sessions()
        found: list[Event] = []
        for session_id, after in self._read_to.items():
            if await self._last_seq(session_id) > after:
                found += await self._read(session_id, after)
        return sorted(found, key=lambda event: event.at or _NO_TIME)

    async def _read(self, session_id: str, after: int) -> list[Event]:
        run_id = self._only.run_id if self._only else None
        events = [event async for event in self._store.read(session_id, after=after, run_id=run_id)]
        if events:
            self._read_to[session_id] = events[-1].seq
            self.over = self._only is not None and isinstance(events[-1], TERMINAL)
        return events

    async def _take_up_sessions(self) -> None:
        """Begin to read the sessions of the runs that have come since last asked."""
        fresh: list[RunInfo] = []
        async with aclosing(all_runs(self._store)) as runs:
            async for run in runs:
                if run.run_id == self._newest:
                    break
                fresh.append(run)
        past = self._newest is None
        told = {run.session_id for n, run in enumerate(fresh) if n < RECENT or run.status in ("created", "running")}
        for run in reversed(fresh):
            if run.session_id not in self._read_to:
                from_now_on = past and run.session_id not in told
                self._read_to[run.session_id] = await self._last_seq(run.session_id) if from_now_on else 0
        if fresh:
            self._newest = fresh[0].run_id

    async def _last_seq(self, session_id: str) -> int:
        session = await self._store.session(session_id)
        return 0 if session is None else session.last_seq
