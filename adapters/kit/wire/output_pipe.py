"""What a process writes to its standard output, and whether all of it was read."""

from __future__ import annotations

import os
import struct
from fcntl import ioctl
from termios import FIONREAD
from typing import Final

import anyio
import anyio.abc
import anyio.lowlevel

_CHUNK: Final = 64 * 1024


class OutputPipe(anyio.abc.ByteReceiveStream):
    """The end of a pipe that is read, by one task.

    Nothing is read ahead: what was written is in the pipe or with the reader. So `caught_up` can tell.
    `write_end` is for the process.
    """

    def __init__(self) -> None:
        self._fd, self.write_end = os.pipe()
        os.set_blocking(self._fd, False)
        self._received = 0
        self._handled = 0
        self._open = True
        self._returned = anyio.Event()

    async def receive(self, max_bytes: int = _CHUNK) -> bytes:
        """The next bytes. To come for them is to have handled those before."""
        self._handled = self._received
        self._wake()
        await anyio.lowlevel.checkpoint()
        while self._open:
            try:
                chunk = os.read(self._fd, min(max_bytes, _CHUNK))
            except BlockingIOError:
                await anyio.wait_readable(self._fd)
                continue
            if not chunk:
                await self.aclose()
                raise anyio.EndOfStream
            self._received += len(chunk)
            return chunk
        raise anyio.ClosedResourceError

    async def caught_up(self) -> None:
        """Return when everything that was written until now was handled, or nothing can be read any more."""
        wanted = self._received + self._pending()
        while self._open and self._handled < wanted:
            await self._returned.wait()

    async def aclose(self) -> None:
        """Read no more."""
        if self._open:
            self._open = False
            anyio.notify_closing(self._fd)
            os.close(self._fd)
            self._wake()

    def let_go(self) -> None:
        """Close the other end here, once: the process has it, or could not be started."""
        os.close(self.write_end)

    def _wake(self) -> None:
        self._returned.set()
        self._returned = anyio.Event()

    def _pending(self) -> int:
        """Bytes in the pipe."""
        if not self._open:
            return 0
        pending: int = struct.unpack("i", ioctl(self._fd, FIONREAD, b"\0" * 4))[0]
        return pending
