"""Clients that share a home start one after another: several at once fail on the home's own database."""

from __future__ import annotations

from pathlib import Path

import anyio
from anyio.lowlevel import RunVar

_homes: RunVar[dict[Path, anyio.Semaphore]] = RunVar("proctor_codex_homes")


class StartTurn:
    """Leave to start a client in a home, until the client has answered."""

    def __init__(self, starting: anyio.Semaphore) -> None:
        self._starting = starting
        self._held = True

    def over(self) -> None:
        """Let the next one start; only the first call counts."""
        if self._held:
            self._held = False
            self._starting.release()


async def turn_to_start(home: Path) -> StartTurn:
    """Wait until no other client of this event loop is starting in the home."""
    try:
        homes = _homes.get()
    except LookupError:
        homes = {}
        _homes.set(homes)
    starting = homes.setdefault(home, anyio.Semaphore(1))
    await starting.acquire()
    return StartTurn(starting)
