"""Both ends of the proxy: the agent, on pipes or HTTP on loopback, and the server, a command or a URL."""

from __future__ import annotations

import os
import select
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol, Self, TypeAlias
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import anyio
import httpx2
import pydantic_core
import uvicorn
from anyio.abc import TaskGroup, TaskStatus
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.streamable_http import GET_STREAM_KEY, StreamableHTTPServerTransport
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from mcp.shared.message import SessionMessage
from mcp.types import METHOD_NOT_FOUND, JSONRPCNotification, jsonrpc_message_adapter
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from proctor.supervisor.errors import ProviderError

from ..kit.client_process import ClientProcess, start_client
from ..kit.http_server import Server, StrictHttp, listening, url_of
from ..kit.jsonrpc import MAX_LINE_BYTES, ByteLines, EndlessLineError
from ..kit.values import whole_characters
from .messages import INITIALIZE, Incoming, Outgoing, short
from .relay import HANDSHAKE_S

Serve: TypeAlias = Callable[[tuple[Incoming, Outgoing]], Awaitable[None]]
"""Serves one client until it hangs up."""


class Downstream(Protocol):
    """Takes clients."""

    @property
    def ends_with_client(self) -> bool:
        """Whether a connection that fails ends the run: there will be no other client."""
        ...

    async def accept(self, serve: Serve) -> None:
        """Serve clients until there will be no more."""
        ...

    async def flush(self) -> None:
        """Return when clients have the answers that were sent to them, or after a moment."""
        ...


PATH = "/mcp"
_SESSION_HEADER = "mcp-session-id"
_MOST_SESSIONS = 100
_FLUSH_S: Final = 1.0
"""Seconds that the last answers may take to reach their clients."""
_LOCAL = TransportSecuritySettings(
    enable_dns_rebinding_protection=True,
    allowed_hosts=["127.0.0.1:*", "localhost:*", "[::1]:*"],
    allowed_origins=["http://127.0.0.1:*", "http://localhost:*", "http://[::1]:*"],
)


class _Session(StreamableHTTPServerTransport):
    """A client's session, with how many of its requests go on; `answering` are the ids of those, as text, whose
    answers have not been sent.
    """

    def __init__(self) -> None:
        self.id = uuid4().hex
        super().__init__(mcp_session_id=self.id, security_settings=_LOCAL)
        self.requests = 0
        self.answering: set[str] = set()


class HttpDownstream:
    """Listens on loopback at `HOST:PORT`, port 0 for a free one; `ready` gets the URL once clients can connect.
    Raises UsageError for an address that is malformed, not loopback, or taken.
    """

    ends_with_client = False

    def __init__(self, address: str, *, ready: Callable[[str], None]) -> None:
        self._socket = listening(address, why="whoever can connect can call tools; use 127.0.0.1")
        self._ready = ready
        self._sessions: dict[str, _Session] = {}

    async def accept(self, serve: Serve) -> None:
        """Serve until cancelled."""
        async with anyio.create_task_group() as tasks:
            app = Starlette(routes=[Route(PATH, endpoint=_Endpoint(self._sessions, serve, tasks))])
            config = uvicorn.Config(
                app, http=StrictHttp, ws="none", log_level="warning", lifespan="off", timeout_graceful_shutdown=1
            )
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

    async def flush(self) -> None:
        with anyio.move_on_after(_FLUSH_S):
            while any(each.answering for each in self._sessions.values()):  # noqa: ASYNC110
                await anyio.sleep(_FLUSH_S / 100)


class _Endpoint:
    """The ASGI application: a session of the protocol is one connection."""

    def __init__(self, sessions: dict[str, _Session], serve: Serve, tasks: TaskGroup) -> None:
        self._sessions = sessions
        self._serve = serve
        self._tasks = tasks
        self._security = TransportSecurityMiddleware(_LOCAL)
        self._idle: dict[str, None] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        receive = _bounded(receive)
        request = Request(scope)
        session_id = request.headers.get(_SESSION_HEADER)
        if session_id is None:
            await self._open(scope, receive, send)
        elif session_id in self._sessions:
            transport = self._sessions[session_id]
            with self._requested(transport):
                await self._serve_session(transport, request, receive, send)
        else:
            await _refused("there is no such session", 404)(scope, receive, send)

    async def _serve_session(self, transport: _Session, request: Request, receive: Receive, send: Send) -> None:
        receive, message = await _message(request, receive)
        text = _id_of(message)
        # The transport keeps one stream for each text of an id: a second request would get the first one's answer.
        if text in (*transport.answering, GET_STREAM_KEY):
            await _refused(f"the request id `{short(str(text))}` is in use", 400)(request.scope, receive, send)
        elif request.method == "GET" and "last-event-id" in request.headers:
            await _refused("no events are kept to resume from", 400)(request.scope, receive, send)
        else:
            await self._handle(transport, text, request.scope, receive, send)

    async def _handle(self, transport: _Session, text: str | None, scope: Scope, receive: Receive, send: Send) -> int:
        """Pass a request, with the text of its id, on to its session; returns the status of the answer."""
        status = 0
        answering = {text} if text is not None else set[str]()
        transport.answering |= answering

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif not message.get("more_body"):
                transport.answering -= answering  # before the client can know and send the next
            await send(message)

        try:
            await transport.handle_request(scope, receive, watched)
        except Exception:
            if transport.id in self._sessions:
                raise  # else it has ended meanwhile, as its server may have
        finally:
            transport.answering -= answering
        if not status:
            await _refused("the session has ended", 404)(scope, receive, send)
        return status

    async def _open(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        stranger = await self._security.validate_request(request, is_post=request.method == "POST")
        if stranger is not None:  # before anything is started: the server behind is a process
            await stranger(scope, receive, send)
            return
        receive, message = await _message(request, receive)
        if not isinstance(message, dict) or message.get("method") != INITIALIZE:
            await _refused("a session begins with `initialize`", 400)(scope, receive, send)
            return
        if len(self._sessions) >= _MOST_SESSIONS:  # only now: while the body came, an idle one may have been used
            oldest = next(iter(self._idle), None)
            if oldest is None:
                await _refused("too many sessions are open", 503)(scope, receive, send)
                return
            del self._idle[oldest]
            await self._sessions[oldest].terminate()
        transport = _Session()
        status = 0
        await self._tasks.start(self._own, transport)
        try:
            with self._requested(transport):
                status = await self._handle(transport, _id_of(message), scope, receive, send)
        finally:
            if not 200 <= status < 400:  # only `initialize` begins a session
                with anyio.CancelScope(shield=True):
                    await transport.terminate()

    @contextmanager
    def _requested(self, transport: _Session) -> Iterator[None]:
        """Note that a client is there while it waits for an answer or for notices; those of whom nothing is heard are
        `_idle`, the longest first.
        """
        transport.requests += 1
        self._idle.pop(transport.id, None)
        try:
            yield
        finally:
            transport.requests -= 1
            if not transport.requests and transport.id in self._sessions:
                self._idle[transport.id] = None

    async def _own(self, transport: _Session, *, task_status: TaskStatus[None]) -> None:
        self._sessions[transport.id] = transport
        try:
            async with transport.connect() as streams:
                task_status.started()
                try:
                    await self._serve(streams)
                finally:
                    del self._sessions[transport.id]
                    self._idle.pop(transport.id, None)
        finally:
            if not transport.is_terminated:
                with anyio.CancelScope(shield=True):
                    await transport.terminate()


async def _message(request: Request, receive: Receive) -> tuple[Receive, Any]:
    """The body to be read again, and what it says, None if nothing."""
    if request.method != "POST":
        return receive, None
    body, message = b"", None
    with suppress(ClientDisconnect, ValueError):
        body = await Request(request.scope, receive).body()
        message = pydantic_core.from_json(body)  # as the transport reads it
    rest: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return rest.pop() if rest else await receive()

    return again, message


def _id_of(message: Any) -> str | None:
    """The text of a request's id, by which the transport finds its stream; None for any other message."""
    is_request = isinstance(message, dict) and "method" in message and message.get("id") is not None
    return str(message["id"]) if is_request else None


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


_CHUNK: Final = 65536


class StdioClient:
    """Messages of the one client there is on `reads`, and to it on `writes`: file descriptors."""

    ends_with_client = True

    def __init__(self, reads: int = 0, writes: int = 1) -> None:
        self._reads = reads
        self._writes = writes
        self._writing = anyio.Lock()

    async def accept(self, serve: Serve) -> None:
        """Serve it."""
        await serve((self, self))

    async def flush(self) -> None:
        """Nothing: `send` has written it."""

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
        rest = memoryview(_line_of(item))
        async with self._writing:
            while rest:  # in pieces that a pipe which is ready takes without blocking
                rest = rest[await self._write(rest[: select.PIPE_BUF]) :]

    async def _chunk(self) -> bytes:
        await _ready(anyio.wait_readable, self._reads)
        try:
            return os.read(self._reads, _CHUNK)
        except ConnectionResetError:  # it left before it had read everything
            return b""

    async def _write(self, data: memoryview) -> int:
        await _ready(anyio.wait_writable, self._writes)
        try:
            return os.write(self._writes, data)
        except ConnectionError:
            raise anyio.BrokenResourceError from None


async def _ready(wait: Callable[[int], Awaitable[None]], descriptor: int) -> None:
    try:
        await wait(descriptor)
    except PermissionError:  # a plain file is always ready and cannot be waited for
        await anyio.lowlevel.checkpoint()


def _line_of(item: SessionMessage) -> bytes:
    return item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"


def _parsed(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error


PROBE_S = 30.0
TERMINATE_S: Final = 2.0
"""Seconds in which a server must end by itself; then it is killed."""
_MOST_PAGES = 100
_REACHED_S: Final = 30.0
"""Seconds in which a server at a URL has to be reached."""


class Upstream(Protocol):
    """Where a server is."""

    @property
    def label(self) -> str:
        """The server's name in messages; nothing secret."""
        ...

    def connect(self, mark: str) -> AbstractAsyncContextManager[tuple[Incoming, Outgoing]]:
        """A connection; leaving it ends the server's process, if it is one. Raises ProviderError."""
        ...


class CommandUpstream:
    """A server that is started for each connection, in the folder of now; `on_stderr` gets each line of its standard
    error, as it came.
    """

    def __init__(self, command: Sequence[str], *, on_stderr: Callable[[str], None] = lambda line: None) -> None:
        self._command = list(command)
        self._cwd = Path.cwd()
        self._on_stderr = on_stderr

    @property
    def label(self) -> str:
        return Path(self._command[0]).name

    @asynccontextmanager
    async def connect(self, mark: str) -> AsyncIterator[tuple[Incoming, Outgoing]]:
        name, own = f"the MCP server `{self._command[0]}`", uuid4().hex
        async with (
            start_client(name, self._command, cwd=self._cwd, env=os.environ, mark=mark, call_id=own) as process,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(process.read_stderr, lambda line: self._on_stderr(f"{self.label}: {line}"))
            server = _ServerPipes(process)
            try:
                yield server, server
            finally:
                with anyio.CancelScope(shield=True):
                    await process.close_input()
                    await process.wait_exit()
                    if process.exit_code is None:
                        await process.tree.terminate(TERMINATE_S)
                tasks.cancel_scope.cancel()


class _ServerPipes:
    """Messages of a server's process, and to it; entered and left, as the SDK's client has streams."""

    def __init__(self, process: ClientProcess) -> None:
        self._process = process
        self._writing = anyio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Nothing: `connect` ends the process."""

    async def __aiter__(self) -> AsyncIterator[SessionMessage | Exception]:
        try:
            async for line in ByteLines(self._process.stdout):
                if line.strip():
                    yield _parsed(whole_characters(line))
        except EndlessLineError:
            raise ProviderError(f"the MCP server wrote a line of more than {MAX_LINE_BYTES:,} bytes") from None

    async def send(self, item: SessionMessage, /) -> None:
        """Write one message. Raises anyio.BrokenResourceError when the server is gone."""
        async with self._writing:
            await self._process.stdin.send(_line_of(item))


_READY = JSONRPCNotification(jsonrpc="2.0", method="notifications/initialized")


class _Renewal(httpx2.Auth):
    """Opens a new session with a server that has lost a connection's, and sends the request again: 404 says that
    nobody has carried it out. `renewed` is called then. An error of the new session is an answer to the request.
    """

    def __init__(self, renewed: Callable[[], None]) -> None:
        self._renewed = renewed
        self._hello: httpx2.Request | None = None
        self._id: str | None = None  # in place of the one that the library knows
        self._renewing = anyio.Lock()

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """The requests in place of one."""
        _authorize(request)
        own = request.headers.get(_SESSION_HEADER)
        if own is None:
            self._hello = request if _method(request.content) == INITIALIZE else self._hello
            yield request
            return
        used = self._use(request, own)
        response = yield request
        if request.method != "POST" or response.status_code != 404 or not await _is_lost(response):
            return
        async with self._renewing:
            if used == (self._id or own) and self._hello is not None:  # else another request has opened one
                opened = yield _hurried(self._hello, HANDSHAKE_S)
                with anyio.fail_after(HANDSHAKE_S):
                    await opened.aread()
                if opened.is_success and _SESSION_HEADER in opened.headers:
                    self._id = opened.headers[_SESSION_HEADER]
                    self._use(request, own)
                    yield _hurried(_ready_of(request), HANDSHAKE_S)
                    self._renewed()
        self._use(request, own)
        yield request

    def _use(self, request: httpx2.Request, own: str) -> str:
        """Name the session of now in a request."""
        request.headers[_SESSION_HEADER] = used = self._id or own
        return used


def _authorize(request: httpx2.Request) -> None:
    """Name who asks, as the URL says: the library does so itself where no `Auth` is set."""
    if request.url.username or request.url.password:
        next(httpx2.BasicAuth(request.url.username, request.url.password).auth_flow(request))


def _method(content: bytes) -> Any:
    with suppress(ValueError):
        message = pydantic_core.from_json(content)
        return message.get("method") if isinstance(message, dict) else None
    return None


async def _is_lost(response: httpx2.Response) -> bool:
    """Whether an answer of status 404 is about the session, not about a method that the server does not have."""
    error: Any = None
    with suppress(ValueError):
        error = pydantic_core.from_json(await response.aread())
    error = error.get("error") if isinstance(error, dict) else None
    return not (isinstance(error, dict) and error.get("code") == METHOD_NOT_FOUND)


def _ready_of(request: httpx2.Request) -> httpx2.Request:
    """The notice that a new session has begun, with the headers of a request in it."""
    headers = {name: value for name, value in request.headers.items() if name != "content-length"}
    return httpx2.Request("POST", request.url, headers=headers, json=_READY.model_dump(exclude_none=True))


def _hurried(request: httpx2.Request, seconds: float) -> httpx2.Request:
    """A request that has only so long for each part of its answer."""
    request.extensions = {**request.extensions, "timeout": httpx2.Timeout(seconds).as_dict()}
    return request


class UrlUpstream:
    """A server reached over streamable HTTP; `warn` gets a text for the operator when it has lost a session."""

    def __init__(self, url: str, *, warn: Callable[[str], None] = lambda text: None) -> None:
        self._url = url
        self._warn = warn

    @property
    def label(self) -> str:
        """The address as it may be recorded: without credentials and query."""
        parts = urlsplit(self._url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))

    @asynccontextmanager
    async def connect(self, mark: str) -> AsyncIterator[tuple[Incoming, Outgoing]]:
        timeout = httpx2.Timeout(_REACHED_S, read=None)  # a call may take any time, and an idle server say nothing
        hooks = {"request": [_hurry_the_end]}

        async def listen_again() -> None:
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                await streams[1].send(SessionMessage(_READY))  # upon this, the library asks for the server's notices

        def renewed() -> None:
            self._warn(f"{self.label} had lost the session; a new one was opened")
            tasks.start_soon(listen_again)

        async with (
            httpx2.AsyncClient(auth=_Renewal(renewed), timeout=timeout, event_hooks=hooks) as client,
            streamable_http_client(self._url, http_client=client, max_sse_event_size=MAX_LINE_BYTES) as streams,
            anyio.create_task_group() as tasks,
        ):
            try:
                yield streams
            finally:
                tasks.cancel_scope.cancel()


async def _hurry_the_end(request: httpx2.Request) -> None:
    """Limit how long a server may take to end its session: the client has left."""
    if request.method == "DELETE":
        _hurried(request, TERMINATE_S)


async def offered_tools(upstream: Upstream, mark: str) -> list[dict[str, Any]]:
    """The tools of a server, asked over a connection of its own. Raises ProviderError."""
    tools: list[dict[str, Any]] = []
    with anyio.move_on_after(PROBE_S) as limited:
        transport: Any = upstream.connect(mark)
        async with Client(transport, mode="legacy") as client:
            cursor: str | None = None
            for _ in range(_MOST_PAGES):
                page = await client.list_tools(cursor=cursor)
                tools += [tool.model_dump(by_alias=True, mode="json") for tool in page.tools]
                cursor = page.next_cursor
                if not cursor:
                    break
    if limited.cancelled_caught:
        raise ProviderError(f"`{upstream.label}` did not list its tools within {PROBE_S:g} seconds")
    return tools
