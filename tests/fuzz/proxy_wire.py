"""Bytes that a client writes to `proctor mcp`, and the lines that reach the server.

A bypass is a line to the server that a lenient parser takes for a call which the gate has not allowed with this name
and these arguments, a message outside the protocol, or an answer that is passed on, or recorded, as another call's.
"""

import json
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final, TypeAlias

import anyio
import anyio.lowlevel
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter

from proctor.adapters.mcp_proxy import messages
from proctor.adapters.mcp_proxy.downstream import StdioClient
from proctor.adapters.mcp_proxy.relay import Relay, SharedByConnections
from proctor.adapters.mcp_proxy.tools import Naming, Visibility
from proctor.policies.events import Event, ToolCallCompleted, ToolCallFailed
from proctor.policies.events.calls import ToolCall
from proctor.supervisor.ports.adapter import GateAnswer

from .ledger import Share
from .proxy_lines import Lines

SESSIONS: Final = 200
"""Of one share."""
LINES: Final = 12
_PATIENCE_S: Final = 30
Pairs: TypeAlias = list[tuple[str, Any]]
Reader: TypeAlias = Callable[[Pairs], dict[str, Any]]


class Server:
    """Answers each call with the token of its arguments, some of them late, and stores every received line."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._send, self._receive = anyio.create_memory_object_stream[SessionMessage | Exception](10_000)
        self._held: list[Any] = []
        self.lines: list[str] = []

    async def send(self, item: SessionMessage) -> None:
        """The proxy's output, as its transport writes it."""
        self.lines.append(item.message.model_dump_json(by_alias=True, exclude_unset=True))
        message = json.loads(self.lines[-1])
        if "method" not in message or "id" not in message:
            return
        params = message.get("params") or {}
        result = {"content": [{"type": "text", "text": str((params.get("arguments") or {}).get("token"))}]}
        if message["method"] != "tools/call":
            result = {}
        elif params.get("name") == "fail":
            result["isError"] = True  # type: ignore[assignment]
        self._held.append((int(float(message["id"])), result))
        self._rng.shuffle(self._held)
        while self._held and self._rng.random() < 0.7:
            self._say(self._held.pop())

    def _say(self, answer: tuple[Any, dict[str, Any]]) -> None:
        line = json.dumps({"jsonrpc": "2.0", "id": answer[0], "result": answer[1]})
        self._send.send_nowait(SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False)))

    def answer_all(self) -> None:
        """Answer all held requests."""
        while self._held:
            self._say(self._held.pop())

    def close(self) -> None:
        """No more requests follow."""
        self._send.close()
        self._receive.close()

    def ask(self) -> None:
        """Send the client a request, so that it may answer one."""
        line = '{"jsonrpc":"2.0","id":1,"method":"ping"}'
        self._send.send_nowait(SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False)))

    async def __aiter__(self) -> AsyncIterator[SessionMessage | Exception]:
        async for item in self._receive:
            yield item


class Session:
    """One client with its proxy and its server."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._lines = Lines(self._rng)
        self._server = Server(self._rng)
        self._answered = anyio.Event()
        self._numbers = iter(range(1, 10_000))
        self.proposed: dict[str, ToolCall] = {}
        self.permitted: list[ToolCall] = []
        self.outcomes: dict[str, Event] = {}
        self.received: list[dict[str, Any]] = []
        self.sent: list[bytes] = []

    async def play(self) -> None:
        """Write lines in pieces of any size, then wait for open requests, and disconnect."""
        reads, writes = os.pipe()
        client = StdioClient(reads)
        desk = SharedByConnections(
            gate=self._gate,
            report=self._report,
            naming=Naming(),
            visibility=Visibility(list),
            new_id=lambda: f"call-{next(self._numbers)}",
            warn=lambda _: None,
            keys=frozenset({"path"}),
        )
        relay = Relay(desk, (client, self), (self._server, self._server))
        try:
            with anyio.fail_after(_PATIENCE_S):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(relay.run)
                    await self._write(writes)
                    os.close(writes)
        finally:
            os.close(reads)
            self._server.close()

    async def _write(self, writes: int) -> None:
        if self._rng.random() < 0.5:
            self._server.ask()
        for _ in range(LINES):
            self.sent.append(self._lines.line())
            rest = self.sent[-1] + b"\n"
            while rest:
                cut = self._rng.choice([1, 7, 10_000])
                os.write(writes, rest[:cut])
                rest = rest[cut:]
                await anyio.lowlevel.checkpoint()
        os.write(writes, b'\n{"jsonrpc":"2.0","id":"last","method":"ping"}\n')
        while not self._answered.is_set():
            self._server.answer_all()
            await anyio.lowlevel.checkpoint()
        for _ in range(20):
            self._server.answer_all()
            await anyio.lowlevel.checkpoint()

    async def _gate(self, call: ToolCall) -> GateAnswer:
        self.proposed[call.id] = call
        for _ in range(self._rng.randrange(4)):
            await anyio.lowlevel.checkpoint()
        allowed = call.name not in ("write", "Write")
        if allowed:
            self.permitted.append(call)
        return GateAnswer(allowed=allowed)

    async def _report(self, event: Event) -> None:
        if isinstance(event, ToolCallCompleted | ToolCallFailed):
            self.outcomes[event.tool_call_id] = event

    async def send(self, item: SessionMessage) -> None:
        """The messages that the client gets."""
        self.received.append(json.loads(item.message.model_dump_json(by_alias=True, exclude_unset=True)))
        if self.received[-1].get("id") == "last":
            self._answered.set()

    def found(self) -> Iterator[str]:
        """The bypasses."""
        permitted = Counter(_shown(call.name, call.input) for call in self.permitted)
        for line in self._server.lines:
            for reader in _READERS:
                read = _read(line, reader)
                method, params = str(read.get("method", "")), read.get("params") or {}
                if "method" in read and method not in {*messages.REQUESTS, *messages.NOTICES}:
                    yield f"`{method}` reached the server: {line}"
                if method.strip().casefold() == "tools/call" and not self._was_permitted(params, reader):
                    yield f"a call reached the server that was not permitted: {line}"
        yield from self._calls_twice(permitted)
        for call in self.permitted:
            outcome = self.outcomes.get(call.id)
            if isinstance(outcome, ToolCallCompleted) and outcome.tool_output != str(call.input.get("token")):
                yield f"the outcome of {call} is {outcome.tool_output!r}"
            if isinstance(outcome, ToolCallCompleted) and call.name == "fail":
                yield f"{call} failed, and is recorded as completed"

    def _was_permitted(self, params: dict[str, Any], reader: Reader) -> bool:
        """Whether the gate has allowed this parser's result: the same call, and no path that the gate did not see."""
        given = params.get("arguments") or {}
        for call in self.permitted:
            written = json.dumps(call.input)
            if call.name == params.get("name") and _read(written, reader) == given:
                return _paths(given) == _paths(call.input)
        return False

    def _calls_twice(self, permitted: Counter[str]) -> Iterator[str]:
        ran = Counter(
            _shown(message["params"].get("name"), message["params"].get("arguments") or {})
            for message in map(json.loads, self._server.lines)
            if message.get("method") == "tools/call"
        )
        yield from (f"ran {count} times: {shown}" for shown, count in ran.items() if count > permitted[shown])


def _shown(name: Any, given: Any) -> str:
    return f"{name!r} {json.dumps(given, sort_keys=True)}"


def _paths(given: Any) -> int:
    """How many inputs called `path`, which the policy reads, are in there."""
    if isinstance(given, dict):
        return sum((key == "path") + _paths(value) for key, value in given.items())
    return sum(map(_paths, given)) if isinstance(given, list) else 0


def _read(line: str, reader: Reader) -> Any:
    return json.loads(line, object_pairs_hook=reader)


def _folded(pairs: Pairs) -> dict[str, Any]:
    """Keys case-insensitively, up to where a C string ends."""
    return {key.casefold().partition("\0")[0]: value for key, value in pairs}


_READERS: Final[tuple[Reader, ...]] = (dict, lambda pairs: dict(reversed(pairs)), _folded)
"""How parsers read the pairs of an object: the last of two keys, the first, or case-insensitively."""


def proxy_wire(seed: int, number: int, sessions: int = SESSIONS) -> Share:
    """Sessions of generated clients, one after another."""
    counts: Counter[str] = Counter()
    found: list[str] = []

    async def play() -> None:
        for each in range(sessions):
            session = Session((seed * 1_000_003 + number) * 1_009 + each)
            try:
                await session.play()
                ways = list(session.found())
            except Exception as error:
                ways = [f"it broke: {error!r}"]
            found.extend(f"session {each}, share {number} of seed {seed}: {way}; {session.sent}" for way in ways)
            counts["lines"] += len(session.sent)
            counts["calls put to the gate"] += len(session.proposed)
            counts["permitted"] += len(session.permitted)
            counts["answers and refusals"] += len(session.received)

    anyio.run(play)
    return Share(dict(counts), found)
