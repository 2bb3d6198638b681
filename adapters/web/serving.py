"""The server on its socket, until it is ended."""

from __future__ import annotations

import socket
from collections.abc import Collection

import anyio
import uvicorn

from proctor.supervisor.ports.adapters import Store

from ..kit.wire.http_server import Server, url_of
from .app import application
from .identities import Tokens

_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


def own_origins(listener: socket.socket) -> tuple[str, ...]:
    """The URLs by which this machine's browsers reach a socket on loopback; of another one, its address."""
    url = url_of(listener)
    address, _, port = url.removeprefix("http://").rpartition(":")
    names = _LOOPBACK_NAMES if address in _LOOPBACK_NAMES else (address,)
    return tuple(f"http://{name}:{port}" for name in names)


async def serve(store: Store, listener: socket.socket, tokens: Tokens, origins: Collection[str] = ()) -> None:
    """Serve until cancelled; then what is asked is answered and the streams end, for a second at most.

    Args:
        store: of the runs; closed by whoever opened it.
        listener: listens already.
        tokens: those that are good.
        origins: more URLs that people reach this by, as behind a proxy.
    """
    closing = anyio.Event()
    app = application(store, tokens, [*own_origins(listener), *origins], closing=closing)
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=1, server_header=False
    )
    server = Server(config)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_told_to_end, server, closing)
        with anyio.CancelScope(shield=True):  # it ends by being told, in order
            await server.serve(sockets=[listener])
        tasks.cancel_scope.cancel()


async def _told_to_end(server: Server, closing: anyio.Event) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        closing.set()
        server.should_exit = True
