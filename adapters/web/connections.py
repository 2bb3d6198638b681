"""Connections to the server: accepted one by one, bounded in number and in time.

Whoever opens connections without a token, or sends requests by halves, takes none from the holder of a token:
when there are too many, whoever has most loses its oldest, and all that showed no valid token count as one.
"""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
import ssl
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import h11
import uvicorn
from anyio.abc import TaskGroup
from uvicorn.protocols.http.h11_impl import H11Protocol

from proctor.supervisor.log import failure, logger

from ..kit.http_server import Server

MAX_CONNECTIONS = 1000
REQUEST_S = 10
"""Seconds in which a request must be complete: since the connection was made, or since the answer before it."""
HEADER_BYTES = 16 * 1024
"""Of one request, all headers together."""
RESERVED_FILES = 128
"""Open files that are left to the store."""
_BACKLOG = 2048
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_RETRY_S = 0.05


class ClientConnection:
    """An accepted socket; `holder` is the name that goes with the valid token it showed last."""

    def __init__(self, accepted: socket.socket) -> None:
        self.holder: str | None = None
        self._socket = accepted

    def close(self) -> None:
        """Its protocol sees the end and lets go of it."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


class BoundedServer(Server):
    """A server that accepts connections itself: `accept` on a started server."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ready = anyio.Event()
        self._open: dict[ClientConnection, None] = {}
        """Oldest first."""
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._most = min(MAX_CONNECTIONS, max(files - RESERVED_FILES, files // 2))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Nothing listens but `accept`."""
        self.servers = []
        self.started = True
        self._ready.set()

    async def accept(self, listener: socket.socket) -> None:
        """Accept connections until cancelled."""
        await self._ready.wait()
        listener.setblocking(False)
        listener.listen(_BACKLOG)
        loop = asyncio.get_running_loop()
        reported = False
        async with anyio.create_task_group() as tasks:
            while True:
                try:
                    accepted, _ = await loop.sock_accept(listener)
                except OSError as error:
                    if error.errno in _EXHAUSTED:
                        if not reported:
                            logger().warning("web.connections_exhausted", **failure(error))
                        reported = True
                        self._make_room()
                        await anyio.sleep(_RETRY_S)
                    continue  # else it is one connection's: its client went away first
                self._admit(accepted, tasks)
                await anyio.lowlevel.checkpoint()

    def _admit(self, accepted: socket.socket, tasks: TaskGroup) -> None:
        if len(self._open) >= self._most:
            self._make_room()
        connection = ClientConnection(accepted)
        self._open[connection] = None
        tasks.start_soon(self._connect, connection, accepted)

    async def _connect(self, connection: ClientConnection, accepted: socket.socket) -> None:
        protocol = partial(
            _Protocol,
            self.config,
            self.server_state,
            {"connection": connection},
            closed=partial(self._open.pop, connection, None),
        )
        context = self.config.ssl
        timeout = REQUEST_S if context else None
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(protocol, accepted, ssl=context, ssl_handshake_timeout=timeout)
        except (OSError, ssl.SSLError):  # no TLS, or not in time
            self._open.pop(connection, None)
            accepted.close()
        except BaseException:
            accepted.close()
            raise

    def _make_room(self) -> None:
        """Close the oldest connection of whoever has most."""
        if self._open:
            most, _ = Counter(connection.holder for connection in self._open).most_common(1)[0]
            oldest = next(connection for connection in self._open if connection.holder == most)
            del self._open[oldest]
            oldest.close()


class _Protocol(H11Protocol):
    """A connection whose requests come whole and in time."""

    def __init__(self, *args: Any, closed: Any) -> None:
        super().__init__(*args)
        self._closed = closed
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_request()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._disarm()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY) and not self.transport.is_closing():
            self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._closed()
        super().connection_lost(exc)

    def _await_request(self) -> None:
        self._disarm()
        self._deadline = self.loop.call_later(REQUEST_S, self.transport.abort)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
