"""Lines out of a stream of bytes, bounded in memory."""

from __future__ import annotations

from collections import deque
from typing import Final

import anyio
import anyio.abc

MAX_LINE_BYTES: Final = 64 * 1024 * 1024
BROKEN: Final = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)
"""What a stream of bytes ends with."""
_SHOWN_BYTES: Final = 200


class EndlessLineError(Exception):
    """A line grew past its bound; `start` is how it begins."""

    def __init__(self, start: bytes) -> None:
        super().__init__("a line without end")
        self.start = start


class ByteLines:
    """The lines a stream brings, and last what it ended with, which may be empty.

    Args:
        stream: where the bytes arrive.
        max_bytes: how long a line may be.

    Raises:
        EndlessLineError: on iteration, for a line that is longer.
    """

    def __init__(self, stream: anyio.abc.ByteReceiveStream, *, max_bytes: int = MAX_LINE_BYTES) -> None:
        self._stream = stream
        self._max_bytes = max_bytes
        self._whole: deque[bytes] = deque()
        self._rest: list[bytes] = []
        self._rest_bytes = 0
        self._over = False

    def __aiter__(self) -> ByteLines:
        return self

    async def __anext__(self) -> bytes:
        while not self._whole:
            if self._over:
                raise StopAsyncIteration
            if self._rest_bytes > self._max_bytes:
                raise EndlessLineError(b"".join(self._rest)[:_SHOWN_BYTES])
            await self._receive()
        return self._whole.popleft()

    async def _receive(self) -> None:
        try:
            first, *more = (await self._stream.receive()).split(b"\n")
        except BROKEN:
            self._over = True
            self._end_line()
            return
        self._begin(first)
        for part in more:
            self._end_line()
            self._begin(part)

    def _begin(self, part: bytes) -> None:
        self._rest.append(part)
        self._rest_bytes += len(part)

    def _end_line(self) -> None:
        self._whole.append(b"".join(self._rest))
        self._rest.clear()
        self._rest_bytes = 0
