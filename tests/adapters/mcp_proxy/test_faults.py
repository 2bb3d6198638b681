"""Failures around the proxy: each is a clear error, and no client waits for ever."""

import base64
import json
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, aclosing, closing, contextmanager, suppress
from typing import Any

import anyio
import loopback
import pytest
import uvicorn
from mcp import MCPError
from mcp.server import MCPServer
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCRequest

from proctor.adapters.kit.client_tools import mcp_output
from proctor.adapters.mcp_proxy.downstream import CommandUpstream, StdioClient, UrlUpstream
from proctor.supervisor import PolicyViolationError, ProviderError, ProviderUnavailableError, UsageError
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = pytest.mark.anyio


async def test_a_server_that_dies_fails_its_calls_and_the_run(bench: Any) -> None:
    """The active call is answered with an error and recorded as failed, and the run has the reason."""
    async with bench.proxied("{name: p}") as proxied:
        is_error, text = await proxied.outcome("crash")

    [failed] = await proxied.events("tool_call_failed")
    assert is_error
    assert "ended before it answered" in text
    assert "ended before it answered" in failed.error
    assert isinstance(bench.error, ProviderError)
    assert (await proxied.events())[-1].type == "run_failed"


MUTE = [sys.executable, "-S", "-c", "import sys; [None for line in sys.stdin]"]
EXITS = [sys.executable, "-S", "-c", "pass"]
NOBODY = UrlUpstream("http://127.0.0.1:9/mcp")
FAILED = "connection to the MCP server failed"


@pytest.mark.parametrize(
    ("policy", "serving", "error", "says", "shows"),
    [
        ("{name: p}", {"command": ["/nonexistent/server"]}, ProviderUnavailableError, "/nonexistent/server", ""),
        ("{name: p}", {"command": EXITS}, ProviderError, "", ""),
        ("{name: p}", {"command": MUTE}, ProviderError, "did not answer", "did not answer `initialize`"),
        ("{name: p}", {"upstream": NOBODY}, ProviderError, FAILED, FAILED),
        ("{name: p, limits: {max_turns: 0}}", {}, PolicyViolationError, "", ""),
        ("{name: p}", {"server": "a__b"}, UsageError, "", ""),
    ],
    ids=["no program", "only exits", "says nothing", "nobody listens", "allows nothing", "ambiguous name"],
)
async def test_a_session_that_cannot_start_fails_its_clients_handshake(
    bench: Any,
    monkeypatch: pytest.MonkeyPatch,
    policy: str,
    serving: dict[str, Any],
    error: type[Exception],
    says: str,
    shows: str,
) -> None:
    """Before the client's own timeout, with the reason."""
    if serving.get("command") == MUTE:
        monkeypatch.setattr("proctor.adapters.mcp_proxy.relay.HANDSHAKE_S", 0.3)
    with pytest.raises(BaseException) as raised:  # noqa: PT011 - the client's own, whichever it is
        async with bench.proxied(policy, **serving):
            pass

    assert isinstance(bench.error, error)
    assert says in str(bench.error)
    assert shows in words(raised.value)


@pytest.mark.parametrize("how", ["hangs up", "ends its stream"])
async def test_an_http_server_that_fails_in_a_call_fails_the_call(bench: Any, how: str) -> None:
    """The client gets an answer. If the connection is lost, the run ends too."""
    with failing_server(how) as url:
        async with bench.proxied("{name: p}", upstream=UrlUpstream(url)) as proxied:
            with suppress(MCPError):
                assert (await proxied.outcome("x"))[0]
        [failed] = await proxied.events("tool_call_failed")
        last = (await proxied.events())[-1]

    assert failed.tool_name == "x"
    assert last.type == ("run_failed" if how == "hangs up" else "run_completed")
    assert isinstance(bench.error, ProviderError) == (how == "hangs up")


@pytest.mark.parametrize(
    "anyio_backend", ["asyncio"]
)  # on trio, the library leaves a reader to the garbage collector
async def test_a_large_answer_in_one_event_is_whole(bench: Any) -> None:
    """As over stdio. The library would truncate an event of more than a mebibyte, and the call would fail."""
    with failing_server("is large") as url:
        async with bench.proxied("{name: p}", upstream=UrlUpstream(url)) as proxied:
            is_error, text = await proxied.outcome("x")

    assert (is_error, len(text)) == (False, 2_000_000)


async def test_an_http_response_may_take_any_time(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As over stdio. The library would close the whole connection after five minutes of silence."""
    monkeypatch.setattr("mcp.shared._httpx_utils.MCP_DEFAULT_SSE_READ_TIMEOUT", 0.2)
    with failing_server("is slow") as url:
        async with bench.proxied("{name: p}", upstream=UrlUpstream(url)) as proxied:
            answered = await proxied.outcome("x")

    assert answered == (False, "at last")


async def test_an_http_server_that_does_not_end_its_session_blocks_nobody(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy exits when its client has left."""
    monkeypatch.setattr("proctor.adapters.mcp_proxy.downstream.TERMINATE_S", 0.1)
    with failing_server("does not end") as url:
        async with bench.proxied("{name: p}", upstream=UrlUpstream(url)) as proxied:
            pass
        last = (await proxied.events())[-1]

    assert (bench.error, last.type) == (None, "run_completed")


class Remote:
    """A real server with sessions at one address, which has lost them all once it is started again."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://ana:secret@127.0.0.1:{self.socket.getsockname()[1]}/mcp"
        self.authorized: set[str] = set()
        self.added = 0
        self.listened = threading.Event()

    def _app(self) -> Any:
        server = MCPServer("remote")

        @server.tool()
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            self.added += 1
            return a + b

        app = server.streamable_http_app()

        async def watched(scope: Any, receive: Any, send: Any) -> None:
            self.authorized |= {
                value.decode() for name, value in scope.get("headers", ()) if name == b"authorization"
            }

            async def answered(message: Any) -> None:
                if scope.get("method") == "GET" and message.get("status") == 200:
                    self.listened.set()
                await send(message)

            await app(scope, receive, answered if scope["type"] == "http" else send)

        return watched

    @contextmanager
    def serving(self) -> Iterator[None]:
        config = uvicorn.Config(self._app, factory=True, log_level="critical", ws="none", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([self.socket.dup()],))
        thread.start()
        try:
            yield
        finally:
            server.should_exit = True
            thread.join()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # on trio, the library leaves readers as above
@pytest.mark.parametrize("together", [1, 3])
async def test_a_session_that_an_http_server_has_lost_is_opened_again(
    bench: Any, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the protocol demands of a client that gets a 404. The calls are carried out once, the server's notices are
    heard again, and the operator learns of it.
    """
    monkeypatch.setattr("mcp.client.streamable_http.MAX_RECONNECTION_ATTEMPTS", 1)
    monkeypatch.setattr("mcp.client.streamable_http.DEFAULT_RECONNECTION_DELAY_MS", 1)
    remote, warned, sums = Remote(), list[str](), list[tuple[bool, str]]()
    with ExitStack() as running, closing(remote.socket):
        running.enter_context(remote.serving())
        async with bench.proxied("{name: p}", upstream=UrlUpstream(remote.url, warn=warned.append)) as proxied:

            async def add(a: int) -> None:
                sums.append(await proxied.outcome("add", a=a, b=1))

            await add(0)
            await anyio.to_thread.run_sync(running.close)
            remote.listened.clear()
            running.enter_context(remote.serving())
            async with anyio.create_task_group() as tasks:
                for a in range(together):
                    tasks.start_soon(add, a + 1)
            await add(9)
            assert await anyio.to_thread.run_sync(remote.listened.wait, PATIENCE_S)

    assert sorted(sums) == sorted((False, str(a + 1)) for a in (*range(together + 1), 9))
    assert remote.added == together + 2
    assert [text.split(" had lost")[0] for text in warned] == [UrlUpstream(remote.url).label]
    assert remote.authorized == {"Basic " + base64.b64encode(b"ana:secret").decode()}


async def test_a_closed_connection_does_not_affect_the_servers_of_others(bench: Any) -> None:
    """HTTP clients share a run, and each has its own server."""
    upstream = CommandUpstream(bench.command)
    async with upstream.connect("run-1") as (answers, requests):
        async with upstream.connect("run-1"):
            pass
        with suppress(anyio.BrokenResourceError):
            await requests.send(SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=7, method="ping")))
        lines: Any = aiter(answers)
        async with aclosing(lines):
            answer = await anext(lines, None)

    assert isinstance(answer, SessionMessage)


def words(error: BaseException) -> str:
    """The text of an exception, or of the first in a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error)


@contextmanager
def failing_server(how: str) -> Iterator[str]:
    """A server that starts normally and fails in every call, or answers it at length; returns its URL."""

    def answer(request: loopback.Exchange) -> None:
        if request.method == "DELETE":
            request.hold()
        elif request.method != "POST":
            request.give(b"", status=405)
        elif request.body["method"] == "tools/call":
            if how == "is slow":
                server.closing.wait(0.5)
                late = {"content": [{"type": "text", "text": "at last"}]}
                request.give({"jsonrpc": "2.0", "id": request.body["id"], "result": late})
            if how == "is large":
                large = {"content": [{"type": "text", "text": "y" * 2_000_000}]}
                request.stream([json.dumps({"jsonrpc": "2.0", "id": request.body["id"], "result": large})])
            elif how == "ends its stream":
                request.give(b"event: message\n\n", kind="text/event-stream")
            request.close_input()
        elif "id" in request.body:
            about = {"name": "failing", "version": "1"}
            version = request.body.get("params", {}).get("protocolVersion")
            result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about, "tools": []}
            session = {"mcp_session_id": "s"} if how == "does not end" else {}
            request.give({"jsonrpc": "2.0", "id": request.body["id"], "result": result}, **session)
        else:
            request.give(b"", status=202)

    server = loopback.Server(answer)
    try:
        yield f"{server.url}/mcp"
    finally:
        server.close()


async def test_standard_input_and_output_carry_messages_of_any_size() -> None:
    """Lines are assembled from pieces, other output is distinguished, and large answers are whole."""
    import os

    reads, their_writes = os.pipe()
    their_reads, writes = os.pipe()
    client = StdioClient(reads, writes)
    line = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
    got: list[Any] = []
    text = bytearray()

    async def read_back() -> None:
        while not text.endswith(b"\n"):
            await anyio.wait_readable(their_reads)
            text.extend(os.read(their_reads, 65536))

    os.write(their_writes, b"garbage\n\n" + line[:10])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read_back)
        async for item in client:
            got.append(item)
            if len(got) == 1:
                os.write(their_writes, line[10:])
            else:
                assert isinstance(item, SessionMessage)
                assert isinstance(item.message, JSONRPCRequest)
                item.message.params = {"x": "y" * 200_000}
                await client.send(item)
                os.close(their_writes)
    for descriptor in (reads, writes, their_reads):
        os.close(descriptor)

    assert isinstance(got[0], ValueError)
    assert len(text) > 200_000


def test_a_tools_output_is_its_structure_or_its_text() -> None:
    """Rules read the structured content. Text blocks are joined, and other blocks unchanged."""
    image = [{"type": "image", "data": "x"}]

    assert mcp_output({"structuredContent": {"a": 1}, "content": []}) == {"a": 1}
    assert mcp_output({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}) == "a\nb"
    assert mcp_output({"content": image}) == image


@pytest.mark.parametrize(("url", "label"), [
    ("https://host/mcp", "https://host/mcp"),
    ("https://ana:secret@host:8443/mcp", "https://host:8443/mcp"),
    ("https://token@host/mcp?key=secret#secret", "https://host/mcp"),
    ("http://a@b:c@[::1]:80/", "http://[::1]:80/"),
])  # fmt: skip
def test_an_address_is_recorded_without_its_secrets(url: str, label: str) -> None:
    """Without the user, the query and the fragment."""
    assert UrlUpstream(url).label == label
