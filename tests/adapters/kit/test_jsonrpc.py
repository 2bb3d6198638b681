"""JSON-RPC with a client: both sides may send requests at once, and nothing waits for ever."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.abc
import pytest
from anyio.streams.stapled import StapledObjectStream

from proctor.adapters.kit.jsonrpc import Peer, RpcClosedError, RpcError, RpcHandler

pytestmark = pytest.mark.anyio


class Bytes(anyio.abc.ByteReceiveStream, anyio.abc.ByteSendStream):
    """One direction of a pipe, in memory."""

    def __init__(self) -> None:
        self._stream = StapledObjectStream(*anyio.create_memory_object_stream[bytes](100))

    async def send(self, item: bytes) -> None:
        await self._stream.send(item)

    async def receive(self, max_bytes: int = 65536) -> bytes:
        return await self._stream.receive()

    async def aclose(self) -> None:
        await self._stream.send_stream.aclose()

    async def drop(self) -> None:
        """Nobody reads any more."""
        await self._stream.aclose()


class Conversation(RpcHandler):
    """A peer and the other side's ends of its pipes; `heard` has what the peer received."""

    def __init__(self, *, tagged: bool = True) -> None:
        self.theirs, self.ours = Bytes(), Bytes()
        self.heard: list[Any] = []
        self.release = anyio.Event()
        self.peer = Peer(self.theirs, self.ours, self, tagged=tagged)

    async def say(self, *messages: Any) -> None:
        """Messages of the other side; bytes are sent unchanged."""
        for message in messages:
            line = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
            await self.theirs.send(line)

    async def hear(self) -> Any:
        return json.loads(await self.ours.receive())

    async def on_request(self, method: str, params: dict[str, Any]) -> Any:
        if method == "slow":
            await self.release.wait()
        if method == "refuse":
            raise RpcError(-1, "no")
        if method == "break":
            raise ValueError("broken")
        return {"method": method, **params}

    async def on_notification(self, method: str, params: dict[str, Any]) -> None:
        self.heard.append((method, params))

    async def on_garbage(self, line: bytes) -> None:
        self.heard.append(line)


@asynccontextmanager
async def conversation(*, tagged: bool = True) -> AsyncIterator[Conversation]:
    """A peer that reads until the other side disconnects."""
    talk = Conversation(tagged=tagged)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(talk.peer.run)
        yield talk
        await talk.theirs.aclose()
    await talk.theirs.drop()
    await talk.ours.drop()


async def answered(talk: Conversation, answer: dict[str, Any]) -> Any:
    """The result of the peer's request for this answer."""
    given: list[Any] = []

    async def ask() -> None:
        try:
            given.append(await talk.peer.request("ask", {"x": 1}))
        except RpcError as error:
            given.append((error.code, error.message))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        request = await talk.hear()
        await talk.say({"id": request["id"], **answer})
    return given[0]


@pytest.mark.parametrize("tagged", [True, False])
async def test_a_request_gets_its_answer(tagged: bool) -> None:
    """Messages have the protocol's version only if it is used."""
    async with conversation(tagged=tagged) as talk:
        assert await answered(talk, {"result": {"y": 2}}) == {"y": 2}
        await talk.peer.notify("done")
        notification = await talk.hear()

    assert notification == ({"jsonrpc": "2.0", "method": "done"} if tagged else {"method": "done"})


@pytest.mark.parametrize(
    ("error", "raised"),
    [({"code": 7, "message": "no"}, (7, "no")), ("odd", (-32603, "odd")), ({"message": 1}, (-32603, "1"))],
)
async def test_an_error_answer_is_raised(error: Any, raised: tuple[int, str]) -> None:
    """In any form."""
    async with conversation() as talk:
        assert await answered(talk, {"error": error}) == raised


async def test_requests_of_the_other_side_are_answered_concurrently() -> None:
    """A slow answer blocks no other."""
    async with conversation() as talk:
        await talk.say({"id": "a", "method": "slow"}, {"id": 0, "method": "quick", "params": {"x": 1}})
        quick = await talk.hear()
        talk.release.set()
        slow = await talk.hear()

    assert quick == {"jsonrpc": "2.0", "id": 0, "result": {"method": "quick", "x": 1}}
    assert slow == {"jsonrpc": "2.0", "id": "a", "result": {"method": "slow"}}


async def test_a_rejected_or_failed_request_is_answered_with_an_error() -> None:
    """The other side never waits in vain."""
    async with conversation() as talk:
        await talk.say({"id": 1, "method": "refuse"})
        rejected = await talk.hear()
        await talk.say({"id": 2, "method": "break"})
        failed = await talk.hear()

    assert rejected["error"] == {"code": -1, "message": "no"}
    assert failed["error"] == {"code": -32603, "message": "`break` failed: broken"}


async def test_a_line_that_is_not_a_message_is_reported_and_reading_continues() -> None:
    """Text, a list, an answer nobody waits for. Messages may arrive in pieces."""
    stray = b'{"id": 99, "result": 1}'
    async with conversation() as talk:
        await talk.say(b"text\n[1]\n\n" + stray + b"\n", b'{"method": "n', b'ote", "params": [1]}\n')
        await talk.say(b'{"method": "last"}')

    assert talk.heard == [b"text", b"[1]", stray, ("note", {}), ("last", {})]


async def test_a_lone_surrogate_is_replaced_except_in_a_request() -> None:
    """JavaScript writes one if it cuts a text. A request must be read exactly; its sender gets an error at once."""
    cut = rb'"params": {"text": "\\\ud83d \ud83d\ude00 \ud83d"}}'
    async with conversation() as talk:
        await talk.say(b'{"method": "note", ' + cut + b"\n", b'{"id": 1, "method": "quick", ' + cut + b"\n")
        rejected = await talk.hear()

    assert talk.heard[0] == ("note", {"text": "\\\ufffd \U0001f600 \ufffd"})
    assert rejected["error"] == {"code": -32600, "message": "`quick` cannot be read"}


async def test_pending_requests_fail_when_the_other_side_disconnects() -> None:
    """So does every later one."""
    failures: list[str] = []

    async def ask() -> None:
        try:
            await talk.peer.request("ask")
        except RpcClosedError as error:
            failures.append(str(error))

    async with conversation() as talk, anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await talk.hear()
        await talk.theirs.aclose()
    await ask()

    assert failures == ["`ask` was not answered before the end", "`ask` was requested after the end"]


async def test_our_answers_end_with_the_conversation() -> None:
    """An unfinished answer blocks nothing."""
    async with conversation() as talk:
        await talk.say({"id": 1, "method": "slow"})


async def test_sending_to_a_closed_peer_is_an_error() -> None:
    """An answer is dropped; a message of ours is an error."""
    async with conversation() as talk:
        await talk.ours.drop()
        await talk.say({"id": 1, "method": "quick"}, {"method": "note"})
        with pytest.raises(RpcClosedError, match="does not listen"):
            await talk.peer.notify("x")
