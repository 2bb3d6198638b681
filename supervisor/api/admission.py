"""Room for runs: a bounded number at once, and never two of one session."""

from __future__ import annotations

import anyio

from ..errors import UsageError


class Admission:
    """What a run takes before it starts and gives back when it is over."""

    def __init__(self, most: int) -> None:
        self._free = anyio.Semaphore(most)
        self._sessions: set[str] = set()

    async def take(self, session_id: str) -> None:
        """Wait until there is room. Raises UsageError if the session has a run that is not over."""
        await self._free.acquire()
        if session_id in self._sessions:
            self._free.release()
            raise UsageError(f"session `{session_id}` already has a run that is not over")
        self._sessions.add(session_id)

    def give_back(self, session_id: str) -> None:
        """Give back the room of a session's run that is over or did not start."""
        self._sessions.remove(session_id)
        self._free.release()
