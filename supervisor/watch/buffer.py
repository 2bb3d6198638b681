"""What one subscriber has been handed and has not taken yet."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import anyio

from ..ports.adapters import LogEntry

ROOM = 1024
ROOM_BYTES = 8 * 1024 * 1024


@dataclass(slots=True, eq=False, kw_only=True)
class Buffer:
    """Entries of one subscriber, within a bound of number and of bytes. What found no room is read from the store
    again: `overflowed` says that it has to be.
    """

    session_id: str | None = None
    run_id: str | None = None
    tenant: str | None = None
    room: int = ROOM
    overflowed: bool = False
    come: anyio.Event = field(default_factory=anyio.Event)
    _entries: deque[LogEntry] = field(default_factory=deque)
    _size: int = 0

    def __bool__(self) -> bool:
        return bool(self._entries) or self.overflowed

    def offer(self, entry: LogEntry) -> None:
        """Take an entry, if it is wanted here."""
        if self.overflowed or (self.run_id or entry.run_id) != entry.run_id:
            return
        if self.tenant is not None and self.tenant != entry.tenant:
            return
        self._size += len(entry.data)
        if len(self._entries) >= self.room or self._size > ROOM_BYTES:
            self._entries.clear()
            self._size = 0
            self.overflowed = True
        else:
            self._entries.append(entry)
        self.come.set()

    def take(self) -> LogEntry | None:
        """The next entry, if there is one."""
        if not self._entries:
            return None
        entry = self._entries.popleft()
        self._size -= len(entry.data)
        return entry
