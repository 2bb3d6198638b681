"""Agents over streamable HTTP: an MCP session each, all of one run. On asyncio only, as its server is."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import anyio
import msgspec
import uvicorn
from anyio.abc import TaskGroup, TaskStatus
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from ...kit.wire.byte_lines import MAX_LINE_BYTES
from ...kit.wire.http_server import Server, listening, url_of
from .connections import Serve

PATH = "/mcp"
_SESSION_HEADER = "mcp-session-id"
_MOST_SESSIONS = 100
_LOCAL = TransportSecuritySettings(
    enable_dns_rebinding_protection=True,
    allowed_hosts=["127.0.0.1:*", "localhost:*", "[::1]:*"],
    allowed_origins=["http://127.0.0.1:*", "http://localhost:*", "http://[::1]:*"],
)


class HttpDownstream:
    """Listens on loopback.

    Args:
        address: `HOST:PORT`; port 0 takes a free one.
        ready: is told the URL once clients can connect.

    Raises:
        UsageError: the address is none, not loopback, or taken.
    """

    ends_with_client = False

    def __init__(self, address: str, *, ready: Callable[[str], None]) -> None:
        self._socket = listening(address, why="whoever can connect can call tools")
        self._ready = ready
        self._sessions: dict[str, StreamableHTTPServerTransport] = {}

    async def take(self, serve: Serve) -> None:
        """Serve until cancelled."""
        async with anyio.create_task_group() as tasks:
            app = Starlette(routes=[Route(PATH, endpoint=_Endpoint(self._sessions, serve, tasks))])
            config = uvicorn.Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
            server = Server(config)
            self._ready(f"{url_of(self._socket)}{PATH}")
            try:
                await server.serve(sockets=[self._socket])
            finally:
                with anyio.CancelScope(shield=True):
                    for transport in list(self._sessions.values()):
                        await transport.terminate()
                self._socket.close()
                tasks.cancel_scope.cancel()


class _Endpoint:
    """The ASGI application: a session of the protocol is one connection."""

    def __init__(self, sessions: dict[str, StreamableHTTPServerTransport], serve: Serve, tasks: TaskGroup) -> None:
        self._sessions = sessions
        self._serve = serve
        self._tasks = tasks
        self._security = TransportSecurityMiddleware(_LOCAL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        receive = _bounded(receive)
        session_id = Request(scope).headers.get(_SESSION_HEADER)
        if session_id is None:
            await self._open(scope, receive, send)
        elif session_id in self._sessions:
            await self._sessions[session_id].handle_request(scope, receive, send)
        else:
            await _refused("there is no such session", 404)(scope, receive, send)

    async def _open(self, scope: Scope, receive: Receive, send: Send) -> None:
        if len(self._sessions) >= _MOST_SESSIONS:
            await _refused("too many sessions are open", 503)(scope, receive, send)
            return
        request = Request(scope)
        stranger = await self._security.validate_request(request, is_post=request.method == "POST")
        if stranger is not None:  # before anything is started: the server behind is a process
            await stranger(scope, receive, send)
            return
        receive, hello = await _first_message(request, receive)
        if not hello:
            await _refused("a session begins with `initialize`", 400)(scope, receive, send)
            return
        session_id = uuid4().hex
        transport = StreamableHTTPServerTransport(mcp_session_id=session_id, security_settings=_LOCAL)
        status = 0

        async def watched(message: dict[str, object]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = int(str(message["status"]))
            await send(message)

        await self._tasks.start(self._own, session_id, transport)
        try:
            await transport.handle_request(scope, receive, watched)  # type: ignore[arg-type]
        finally:
            if not 200 <= status < 400:  # only `initialize` begins a session
                with anyio.CancelScope(shield=True):
                    await transport.terminate()

    async def _own(
        self, session_id: str, transport: StreamableHTTPServerTransport, *, task_status: TaskStatus[None]
    ) -> None:
        self._sessions[session_id] = transport
        try:
            async with transport.connect() as streams:
                task_status.started()
                await self._serve(streams)
        finally:
            del self._sessions[session_id]
            if not transport.is_terminated:
                with anyio.CancelScope(shield=True):
                    await transport.terminate()


async def _first_message(request: Request, receive: Receive) -> tuple[Receive, bool]:
    """The body to be read again, and whether it asks for a session: what does not starts no server."""
    if request.method != "POST":
        return receive, False
    try:
        body = await Request(request.scope, receive).body()
        message = msgspec.json.decode(body)
    except (ClientDisconnect, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return receive, False
    rest: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return rest.pop() if rest else await receive()

    return again, isinstance(message, dict) and message.get("method") == "initialize"


def _bounded(receive: Receive) -> Receive:
    """A request that is cut off where its body grows past what a message may have."""
    left = MAX_LINE_BYTES

    async def counted() -> Message:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        return message if left >= 0 else {"type": "http.disconnect"}

    return counted


def _refused(why: str, status: int) -> JSONResponse:
    error = {"code": -32600, "message": why}
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, status_code=status)
