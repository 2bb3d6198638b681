"""Something that happens once and can be waited for; nearly free until somebody waits."""

from __future__ import annotations

import anyio
from anyio.lowlevel import checkpoint


class Latch:
    """Like `anyio.Event`, which holds a queue of its own from the start: thousands of idle runs have several."""

    __slots__ = ("_event", "_set")

    def __init__(self) -> None:
        self._set = False
        self._event: anyio.Event | None = None

    def set(self) -> None:
        """It has happened; whoever waits goes on."""
        self._set = True
        if self._event is not None:
            self._event.set()

    def is_set(self) -> bool:
        """Whether it has happened."""
        return self._set

    async def wait(self) -> None:
        """Return once it has happened."""
        if self._set:
            await checkpoint()
            return
        if self._event is None:
            self._event = anyio.Event()
        await self._event.wait()
