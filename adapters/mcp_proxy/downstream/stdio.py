"""The agent on this process's own pipes: one JSON-RPC message a line, read and written without a thread.

A read in a worker thread could not be cancelled, and the proxy could not end before its client speaks.
"""

from __future__ import annotations

import os
import select
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import anyio
import anyio.lowlevel
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter

from proctor.supervisor.errors import ProviderError

from ...kit.wire.byte_lines import MAX_LINE_BYTES
from .connections import Serve

_CHUNK: Final = 65536


class StdioClient:
    """Messages of the one client there is on `reads`, and to it on `writes`: file descriptors."""

    ends_with_client = True

    def __init__(self, reads: int = 0, writes: int = 1) -> None:
        self._reads = reads
        self._writes = writes
        self._writing = anyio.Lock()

    async def take(self, serve: Serve) -> None:
        """Serve it."""
        await serve((self, self))

    async def __aiter__(self) -> AsyncIterator[SessionMessage | Exception]:
        rest = bytearray()
        while chunk := await self._chunk():
            rest += chunk
            if b"\n" in chunk:
                *lines, end = bytes(rest).split(b"\n")
                rest = bytearray(end)
                for line in lines:
                    if line.strip():
                        yield _parsed(line)
            elif len(rest) > MAX_LINE_BYTES:
                raise ProviderError(f"the client wrote a line of more than {MAX_LINE_BYTES:,} bytes")

    async def send(self, item: SessionMessage, /) -> None:
        """Write one message. Raises anyio.BrokenResourceError when the client is gone."""
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        rest = memoryview(text.encode() + b"\n")
        async with self._writing:
            while rest:  # in pieces that a pipe which is ready takes without blocking
                rest = rest[await self._write(rest[: select.PIPE_BUF]) :]

    async def _chunk(self) -> bytes:
        await _ready(anyio.wait_readable, self._reads)
        return os.read(self._reads, _CHUNK)

    async def _write(self, data: memoryview) -> int:
        await _ready(anyio.wait_writable, self._writes)
        try:
            return os.write(self._writes, data)
        except BrokenPipeError:
            raise anyio.BrokenResourceError from None


async def _ready(wait: Callable[[int], Awaitable[None]], descriptor: int) -> None:
    try:
        await wait(descriptor)
    except PermissionError:  # a plain file is always ready and cannot be waited for
        await anyio.lowlevel.checkpoint()


def _parsed(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error
