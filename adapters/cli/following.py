"""New events of many sessions, whatever process writes them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from proctor.policies.events import TERMINAL, Event

if TYPE_CHECKING:
    from proctor.supervisor.ports import RunInfo, Store

NEWEST = 100
"""Sessions of so many newest runs are looked at."""
_NO_TIME = datetime.min.replace(tzinfo=UTC)


class Follower:
    """Reads what was stored since it last looked; with `only`, of one run."""

    def __init__(self, store: Store, only: RunInfo | None = None) -> None:
        self._store = store
        self._only = only
        self._read_to: dict[str, int] = {}
        self.over = False

    async def new(self) -> list[Event]:
        """The events since last asked, by time; those of one session keep their order."""
        found: list[Event] = []
        for session_id in await self._sessions():
            after = self._read_to.get(session_id, 0)
            session = await self._store.session(session_id)
            if session is None or session.last_seq <= after:
                continue
            async for event in self._store.read(session_id, after=after, run_id=self._run_id):
                found.append(event)
                self._read_to[session_id] = event.seq
                self.over = self.over or (self._only is not None and isinstance(event, TERMINAL))
        return sorted(found, key=lambda event: event.at or _NO_TIME)

    @property
    def _run_id(self) -> str | None:
        return self._only.run_id if self._only else None

    async def _sessions(self) -> list[str]:
        if self._only is not None:
            return [self._only.session_id]
        return list(dict.fromkeys(run.session_id for run in reversed(await self._store.runs(limit=NEWEST))))
