"""The stream of events of an adapter whose work runs in tasks of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterable
from typing import Final

import anyio

from proctor.policies.stream.events import Event

BACKLOG: Final = 1024
"""Events that may wait for the reader before `put` waits for it too."""


class EventStream:
    """Hands events, in order, to the one who iterates the stream.

    `put` slows down a client that reports faster than it is supervised. `emit` returns when the reader has come
    back for more, so what an agent does next (ask the gate, run a call) comes after everything it said before.

    Args:
        backlog: how many events may wait for the reader before `put` waits.
    """

    def __init__(self, *, backlog: int = BACKLOG) -> None:
        self._waiting: deque[tuple[Event, anyio.Event]] = deque()
        self._backlog = backlog
        self._wake = anyio.Event()
        self._error: Exception | None = None
        self.closed = False

    async def emit(self, event: Event) -> None:
        """Hand over one event and wait until it was dealt with; after the end of the stream, drop it."""
        self.post(event)
        await self.settled()

    async def put(self, events: Iterable[Event]) -> None:
        """Hand over events; while more of them wait than may, wait for the reader."""
        for event in events:
            self.post(event)
            if len(self._waiting) >= self._backlog:
                await self.settled()

    def post(self, *events: Event) -> None:
        """Hand over events without waiting; after the end of the stream, drop them."""
        if not self.closed:
            self._waiting.extend((event, anyio.Event()) for event in events)
            self._wake.set()

    async def settled(self) -> None:
        """Return when everything handed over so far was dealt with, or the reader has left."""
        if self._waiting:
            await self._waiting[-1][1].wait()

    def close(self, error: Exception | None = None) -> None:
        """End the stream after what was emitted, by raising `error` if given; only the first close counts."""
        if not self.closed:
            self._error = error
            self.closed = True
            self._wake.set()

    async def events(self) -> AsyncIterator[Event]:
        """The stream; to be iterated once."""
        try:
            while True:
                while self._waiting:
                    event, handled = self._waiting[0]
                    yield event
                    self._waiting.popleft()
                    handled.set()
                if self.closed:
                    break
                self._wake = anyio.Event()
                await self._wake.wait()
            if self._error is not None:
                raise self._error
        finally:
            self.abandon()

    def abandon(self) -> None:
        """The reader has left: let all go that wait for it."""
        self.closed = True
        while self._waiting:
            self._waiting.popleft()[1].set()
