"""What goes wrong around the proxy: a clear error each time, nobody left waiting."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import anyio
import loopback
import pytest
from mcp import MCPError
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCRequest

from proctor.adapters.mcp_proxy.downstream import StdioClient, UrlUpstream
from proctor.adapters.mcp_proxy.messages import output_of
from proctor.supervisor import PolicyViolationError, ProviderError, ProviderUnavailableError, UsageError
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = pytest.mark.anyio


async def test_a_server_that_dies_fails_its_calls_and_the_run(bench: Any) -> None:
    """The call under way is answered with an error and recorded as failed; the run says what happened."""
    async with bench.proxied("{name: p}") as proxied:
        is_error, text = await proxied.outcome("crash")

    [failed] = await proxied.events("tool_call_failed")
    assert is_error
    assert "ended before it answered" in text
    assert "ended before it answered" in failed.error
    assert isinstance(bench.error, ProviderError)
    assert (await proxied.events())[-1].type == "run_failed"


async def test_a_server_that_cannot_be_started_is_named(bench: Any) -> None:
    """The client's handshake fails rather than hangs, and the error names the program."""
    with pytest.raises(BaseException):  # noqa: B017, PT011 - the client's own, whichever it is
        async with bench.proxied("{name: p}", command=["/nonexistent/server"]):
            pass

    assert isinstance(bench.error, ProviderUnavailableError)
    assert "/nonexistent/server" in str(bench.error)


async def test_a_server_that_only_exits_leaves_nobody_waiting(bench: Any) -> None:
    """A program that is no MCP server ends the run with an error."""
    with pytest.raises(BaseException):  # noqa: B017, PT011 - the client's own, whichever it is
        async with bench.proxied("{name: p}", command=[sys.executable, "-S", "-c", "pass"]):
            pass

    assert isinstance(bench.error, ProviderError)


async def test_an_address_where_nobody_listens_is_an_error(bench: Any) -> None:
    """The client's handshake is answered, and the run says why it failed."""
    with pytest.raises(BaseException) as refused:  # noqa: PT011 - the client's own, whichever it is
        async with bench.proxied("{name: p}", upstream=UrlUpstream("http://127.0.0.1:9/mcp")):
            pass

    assert isinstance(bench.error, ProviderError)
    assert "connection to the MCP server failed" in str(bench.error)
    assert "connection to the MCP server failed" in words(refused.value)


async def test_a_server_that_does_not_begin_is_given_up(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its client's own patience ends, which would know nothing of the reason."""
    monkeypatch.setattr("proctor.adapters.mcp_proxy.relay.HANDSHAKE_S", 0.3)
    mute = [sys.executable, "-S", "-c", "import sys; [None for line in sys.stdin]"]
    with pytest.raises(BaseException) as refused:  # noqa: PT011 - the client's own, whichever it is
        async with bench.proxied("{name: p}", command=mute):
            pass

    assert isinstance(bench.error, ProviderError)
    assert "did not answer `initialize`" in words(refused.value)


@pytest.mark.parametrize("how", ["hangs up", "ends its stream"])
async def test_a_server_at_an_address_that_fails_in_a_call_fails_the_call(bench: Any, how: str) -> None:
    """The client has its answer. Without a connection the run is over, too."""
    with failing_server(how) as url:
        async with bench.proxied("{name: p}", upstream=UrlUpstream(url)) as proxied:
            with suppress(MCPError):
                assert (await proxied.outcome("x"))[0]
        [failed] = await proxied.events("tool_call_failed")
        last = (await proxied.events())[-1]

    assert failed.tool_name == "x"
    assert last.type == ("run_failed" if how == "hangs up" else "run_completed")
    assert isinstance(bench.error, ProviderError) == (how == "hangs up")


def words(error: BaseException) -> str:
    """The text of an exception, or of the first in a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error)


@contextmanager
def failing_server(how: str) -> Iterator[str]:
    """A server that begins as it should and fails in every call; gives its URL."""

    def answer(request: loopback.Exchange) -> None:
        if request.method != "POST":
            request.give(b"", status=405)
        elif request.body["method"] == "tools/call":
            if how == "ends its stream":
                request.give(b"event: message\n\n", kind="text/event-stream")
            request.hang_up()
        elif "id" in request.body:
            about = {"name": "failing", "version": "1"}
            version = request.body["params"].get("protocolVersion")
            result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
            request.give({"jsonrpc": "2.0", "id": request.body["id"], "result": result})
        else:
            request.give(b"", status=202)

    server = loopback.Server(answer)
    try:
        yield f"{server.url}/mcp"
    finally:
        server.close()


async def test_what_is_no_message_is_reported_and_passed_over(bench: Any) -> None:
    """A server that prints beside the protocol does not end the session."""
    async with bench.proxied("{name: p}") as proxied:
        answered = await proxied.outcome("babble")

    assert answered == (False, "babbled")
    assert proxied.warnings == ["the MCP server wrote something that is not a message: this is no message"]
    assert bench.error is None


async def test_a_policy_that_could_allow_nothing_is_refused_before_the_server_starts(bench: Any) -> None:
    """Preflight comes first."""
    with pytest.raises(BaseException):  # noqa: B017, PT011 - the client's own, whichever it is
        async with bench.proxied("{name: p, limits: {max_turns: 0}}"):
            pass

    assert isinstance(bench.error, PolicyViolationError)


async def test_a_server_name_must_fit_into_a_tools_name(bench: Any) -> None:
    """A name with `__` would make tool names ambiguous."""
    with pytest.raises(BaseException):  # noqa: B017, PT011 - the client's own, whichever it is
        async with bench.proxied("{name: p}", server="a__b"):
            pass

    assert isinstance(bench.error, UsageError)


async def test_the_pipes_of_this_process_carry_messages_of_any_size() -> None:
    """Lines are put together from pieces, what is no message is told apart, and large answers are whole."""
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
    with anyio.fail_after(PATIENCE_S):
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
    """Rules read the structured content; text blocks are joined; other blocks stay as they are."""
    image = [{"type": "image", "data": "x"}]

    assert output_of({"structuredContent": {"a": 1}, "content": []}) == {"a": 1}
    assert output_of({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}) == "a\nb"
    assert output_of({"content": image}) == image
