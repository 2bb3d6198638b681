"""The server on its socket, until it is ended."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Collection

import anyio
import msgspec
import uvicorn

from proctor.supervisor.errors import UsageError
from proctor.supervisor.ports.adapters import Store

from ..kit.wire.http_server import url_of
from .app import application
from .connections import HEADER_BYTES, BoundedServer
from .identities import AccessTokens

_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """Files in PEM form with which the server speaks TLS: the certificate with its chain, and its private key."""

    file: str
    key: str

    def check(self) -> None:
        """Raises UsageError for files that are not a certificate and its key."""
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(self.file, self.key, _no_password)
        except ssl.SSLError as error:
            why = error.reason or str(error)
            raise UsageError(f"`{self.file}` and `{self.key}` are not a certificate and its key: {why}") from None
        except OSError as error:
            raise UsageError(f"the certificate or its key cannot be read: {error.strerror}") from None


def _no_password() -> str:
    raise UsageError("the certificate's key is encrypted; `serve` asks for no password")


def own_origins(listener: socket.socket, scheme: str = "http") -> tuple[str, ...]:
    """The URLs under which this machine's browsers reach a loopback socket; for any other socket, its address."""
    url = url_of(listener)
    address, _, port = url.removeprefix("http://").rpartition(":")
    names = _LOOPBACK_NAMES if address in _LOOPBACK_NAMES else (address,)
    return tuple(f"{scheme}://{name}:{port}" for name in names)


async def serve(
    store: Store,
    listener: socket.socket,
    tokens: AccessTokens,
    origins: Collection[str] = (),
    *,
    certificate: Certificate | None = None,
    proxy: str | None = None,
) -> None:
    """Serve until cancelled; then finish open requests and end the streams, within a second.

    Args:
        store: holds the runs; whoever opened it closes it.
        listener: a socket that already listens.
        tokens: the valid ones.
        origins: more URLs under which people reach this server, as behind a proxy.
        certificate: for TLS; without one it speaks plain HTTP.
        proxy: the address of a proxy that names the client in `X-Forwarded-For`.
    """
    closing = anyio.Event()
    scheme = "http" if certificate is None else "https"
    app = application(store, tokens, [*own_origins(listener, scheme), *origins], closing=closing)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=1,
        h11_max_incomplete_event_size=HEADER_BYTES,
        server_header=False,
        proxy_headers=proxy is not None,
        forwarded_allow_ips=proxy or [],
        ssl_certfile=certificate.file if certificate else None,
        ssl_keyfile=certificate.key if certificate else None,
    )
    server = BoundedServer(config)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_told_to_end, server, closing)
        tasks.start_soon(server.accept, listener)
        with anyio.CancelScope(shield=True):  # it ends by being told, in order
            await server.serve(sockets=[listener])
        tasks.cancel_scope.cancel()


async def _told_to_end(server: BoundedServer, closing: anyio.Event) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        closing.set()
        server.should_exit = True
