"""Wakes those that wait when something is stored."""

from __future__ import annotations

import anyio
import anyio.lowlevel


class Wakeups:
    """Counts what was stored; `wait` returns once the count has moved on from a token."""

    def __init__(self) -> None:
        self._version = 1
        self._waiting: list[anyio.Event] = []

    def ring(self) -> None:
        """Something was stored: wake everybody who waits."""
        self._version += 1
        waiting, self._waiting = self._waiting, []
        for changed in waiting:
            changed.set()

    async def wait(self, token: int, timeout_s: float) -> int:
        """Return the next token once something was stored since `token`, or the time is up."""
        if token != self._version:
            await anyio.lowlevel.checkpoint()
            return self._version
        changed = anyio.Event()
        self._waiting.append(changed)
        try:
            with anyio.move_on_after(timeout_s):
                await changed.wait()
        finally:
            if not changed.is_set():
                self._waiting.remove(changed)
        return self._version
