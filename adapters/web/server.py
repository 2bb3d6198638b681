"""The server on its socket, with its connections."""

from __future__ import annotations

import asyncio
import errno
import mimetypes
import resource
import socket
import ssl
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import h11
import msgspec
import uvicorn
from anyio.abc import TaskGroup
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from proctor.policies.errors import os_words
from proctor.supervisor.errors import UsageError
from proctor.supervisor.log import failure, logger
from proctor.supervisor.ports.store import Store

from ..kit.http_server import Server, StrictHttp, url_of
from ..operations.identities import AccessTokens
from ..operations.service import OperatorService
from . import api_control, api_runs
from .api_control import StoreHealth
from .auth import ASSETS, Guard, refused
from .endpoints import Endpoint, Operation, endpoint, openapi

PAGE = files(__package__).joinpath("page")
OPERATIONS = tuple(
    found for file in (api_runs, api_control) for found in vars(file).values() if isinstance(found, Operation)
)
"""Everything the API can do."""


def application(store: Store, tokens: AccessTokens, origins: Collection[str], *, closing: anyio.Event) -> ASGIApp:
    """The page and the API on a store, which stays open; `origins` are the URLs under which people reach this server,
    `closing` is set to end the streams.
    """
    service = OperatorService(store)
    described = msgspec.json.encode(openapi(OPERATIONS, _version()))

    async def document(request: Request) -> Response:
        return Response(described, media_type="application/json")

    routes = [
        Route("/", _page, methods=["GET"]),
        Route(ASSETS + "{name}", _page, methods=["GET"]),
        Route("/openapi.json", document, methods=["GET"]),
        *(Route(path, _by_method(found), methods=list(found)) for path, found in _endpoints(service).items()),
    ]
    handlers: Any = {404: _unknown, 405: _unknown, ClientDisconnect: _left, Exception: _failed}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.state.streams = 0
    app.state.health = StoreHealth(store)
    app.state.closing = closing
    return Guard(app, tokens, origins)


def _endpoints(records: OperatorService) -> dict[str, dict[str, Endpoint]]:
    """The endpoints, by path and method."""
    found: dict[str, dict[str, Endpoint]] = {}
    for operation in OPERATIONS:
        found.setdefault(operation.path, {})[operation.method] = endpoint(operation, records)
    return found


def _by_method(found: dict[str, Endpoint]) -> Endpoint:
    """One endpoint for all methods of a path, so that a request by another method learns which there are."""

    async def answer(request: Request) -> Response:
        return await found["GET" if request.method == "HEAD" else request.method](request)

    return answer


def _version() -> str:
    import proctor

    return proctor.__version__


_FILES = {each.name: each.read_bytes() for each in PAGE.iterdir() if each.is_file()}
"""The page's files by name: nothing else is ever read for a request."""


async def _page(request: Request) -> Response:
    name = request.path_params.get("name", "index.html")
    data = _FILES.get(name)
    if data is None:
        return refused(404, "not_found", "there is no such file")
    return Response(data, media_type=mimetypes.guess_type(name)[0] or "application/octet-stream")


async def _unknown(request: Request, error: Any) -> Response:
    code = "not_found" if error.status_code == 404 else "bad_method"
    answer = refused(error.status_code, code, "nothing is here; see /openapi.json")
    answer.headers.update(error.headers or {})  # which methods there are
    return answer


async def _left(request: Request, error: Exception) -> Response:
    """A client went away, or was sent away, before its request was whole: nobody reads the answer."""
    return refused(400, "incomplete", "the request is not complete")


async def _failed(request: Request, error: Exception) -> Response:
    """Log an error with the request's path only; the answer has no details."""
    logger().error("web.failed", path=request.url.path, **failure(error))
    return refused(500, "error", "this should not have happened; the server's log says more")


_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """PEM files for TLS: the certificate with its chain, and its private key."""

    file: str
    key: str

    def check(self) -> None:
        """Raises UsageError for files that are not a certificate and its key."""
        for file in (self.file, self.key):
            try:
                Path(file).open("rb").close()
            except OSError as error:
                raise UsageError(f"`{file}` cannot be read: {os_words(error)}") from None
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(self.file, self.key, _no_password)
        except ssl.SSLError as error:
            why = error.reason or "one of them is no such PEM file"
            raise UsageError(f"`{self.file}` and `{self.key}` are not a certificate and its key: {why}") from None


def _no_password() -> str:
    raise UsageError("the certificate's key is encrypted; use one without a password")


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
        log_level="critical",  # it would log a line, or a traceback, for whatever a client gets wrong
        access_log=False,
        lifespan="off",
        ws="none",  # it would answer before anything here is asked, with an internal error
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
        tasks.start_soon(_close_on_request, server, closing)
        tasks.start_soon(server.accept, listener)
        with anyio.CancelScope(shield=True):  # it ends by being told, in order
            await server.serve(sockets=[listener])
        tasks.cancel_scope.cancel()


async def _close_on_request(server: BoundedServer, closing: anyio.Event) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        closing.set()
        server.should_exit = True


MAX_CONNECTIONS = 1000
REQUEST_S = 10
"""Seconds within which a request must be complete, after the connection was made or the answer before it."""
HEADER_BYTES = 16 * 1024
"""How many bytes all headers of a request may have."""
RESERVED_FILES = 128
"""How many open files are reserved for the store."""
_BACKLOG = 2048
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_RETRY_S = 0.05


class ClientConnection:
    """An accepted socket; `holder` is the name of the last valid token sent through it."""

    def __init__(self, accepted: socket.socket) -> None:
        self.holder: str | None = None
        self._socket = accepted

    def close(self) -> None:
        """Shut it down; its protocol sees the end."""
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
        """Start without sockets, as `accept` listens."""
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
                        self._close_oldest()
                        await anyio.sleep(_RETRY_S)
                    continue  # else it is one connection's: its client went away first
                self._admit(accepted, tasks)
                await anyio.lowlevel.checkpoint()

    def _admit(self, accepted: socket.socket, tasks: TaskGroup) -> None:
        if len(self._open) >= self._most:
            self._close_oldest()
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

    def _close_oldest(self) -> None:
        """Close the oldest connection of the address with the most."""
        if self._open:
            most, _ = Counter(connection.holder for connection in self._open).most_common(1)[0]
            oldest = next(connection for connection in self._open if connection.holder == most)
            del self._open[oldest]
            oldest.close()


class _Protocol(StrictHttp):
    """A connection that closes if a request is not complete in time."""

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
