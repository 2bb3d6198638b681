"""A store that fails on purpose."""

from __future__ import annotations

from collections.abc import Sequence

from proctor.policies.stream.events import Event

from ...errors import StoreError
from ...store.memory.store import MemoryStore


class FaultyStore(MemoryStore):
    """Keeps everything in memory, but append number `fails_at` (and, with `stays_broken`, every later one)
    raises StoreError.
    """

    def __init__(self, fails_at: int, *, stays_broken: bool = False) -> None:
        super().__init__()
        self.appends = 0
        self._fails_at = fails_at
        self._stays_broken = stays_broken

    async def append(self, events: Sequence[Event], *, epoch: int = 0) -> list[Event]:
        """Store events, or raise StoreError when it is due."""
        self.appends += 1
        if self.appends == self._fails_at or (self._stays_broken and self.appends > self._fails_at):
            raise StoreError("the disk is full", kind="unwritable")
        return await super().append(events, epoch=epoch)
