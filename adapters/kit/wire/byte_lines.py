"""Lines out of a stream of bytes, bounded in memory."""

from __future__ import annotations

from typing import Final

import anyio
import anyio.abc
from anyio.streams.buffered import BufferedByteReceiveStream

MAX_LINE_BYTES: Final = 64 * 1024 * 1024
BROKEN: Final = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)
"""What a stream of bytes ends with."""
_SHOWN_BYTES: Final = 200


class EndlessLineError(Exception):
    """A line grew past its bound.

    Attributes:
        start: How it begins.
    """

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
        self._buffered = BufferedByteReceiveStream(stream)
        self._max_bytes = max_bytes
        self._over = False

    def __aiter__(self) -> ByteLines:
        return self

    async def __anext__(self) -> bytes:
        if self._over:
            raise StopAsyncIteration
        try:
            return await self._buffered.receive_until(b"\n", self._max_bytes)
        except anyio.DelimiterNotFound:
            raise EndlessLineError(self._buffered.buffer[:_SHOWN_BYTES]) from None
        except (anyio.IncompleteRead, *BROKEN):
            self._over = True
            return self._buffered.buffer
