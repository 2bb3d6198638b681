"""The hook of Claude Code and the MCP proxy, running a script of calls with reused ids."""

import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter

from proctor.adapters.hooks.clients import claude
from proctor.adapters.mcp_proxy.adapter import McpProxyAdapter
from proctor.adapters.mcp_proxy.downstream import Serve
from proctor.adapters.stores import SQLiteStore
from proctor.policies import Policy
from tests.hook_processes import decider_for

from .call_ids import Played, Ran, Responses, supervised

_ROOM: Final = 1_000


async def hook(script: Responses, given: list[Policy]) -> Played:
    """The hook of Claude Code, called as the client does: for all calls of a response, then with each outcome."""
    ran: Ran = []
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        decider = decider_for(folder, msgspec.json.encode(given[0]).decode())

        def allows(event: str, **fields: Any) -> bool:
            data = {"session_id": "s", "prompt_id": "p", "hook_event_name": event, **fields}
            return "hookSpecificOutput" not in claude.output(*decider.answer_hook(json.dumps(data).encode()))

        for response in script:
            fields = [{"tool_use_id": c.id, "tool_name": c.tool, "tool_input": {"n": c.n}} for c in response]
            allowed = [allows("PreToolUse", **each) for each in fields]
            for call, each, runs in zip(response, fields, allowed, strict=True):
                if runs:
                    ran.append((call.tool, call.n))
                    allows("PostToolUse", **each, tool_response="done")
            allows("PostToolBatch", tool_calls=fields)
        allows("Stop")
        decider.close()
        async with SQLiteStore(folder / "store.db") as store:
            return Played(ran, [event async for event in store.read("s")])


async def proxy(script: Responses, given: list[Policy]) -> Played:
    """The MCP proxy between a client that reuses its request ids, and a server that answers at once."""
    ran: Ran = []
    adapter = McpProxyAdapter(_Server(ran), _Client(script), warn=lambda _: None)
    return await supervised([adapter], given, ran)


def _message(**output_of: Any) -> SessionMessage:
    return SessionMessage(jsonrpc_message_adapter.validate_python({"jsonrpc": "2.0", **output_of}, by_name=False))


class _Server:
    """A server in memory that records its calls."""

    label = "memory"

    def __init__(self, ran: Ran) -> None:
        self._ran = ran
        self._answers, self._read = anyio.create_memory_object_stream[SessionMessage | Exception](_ROOM)

    @asynccontextmanager
    async def connect(self, run_id: str) -> AsyncIterator[Any]:
        with self._answers, self._read:
            yield self._read, self

    async def send(self, item: SessionMessage) -> None:
        """Handle the request."""
        message: Any = item.message
        if getattr(message, "method", None) == "tools/call":
            self._ran.append((message.params["name"], message.params["arguments"]["n"]))
        if hasattr(message, "id"):
            self._answers.send_nowait(_message(id=message.id, result={"content": [{"type": "text", "text": "done"}]}))


class _Client:
    """Sends the calls of a response at once, and waits for as many answers."""

    ends_with_client = True

    def __init__(self, script: Responses) -> None:
        self._script = script

    async def flush(self) -> None:
        """Nothing: every send waits."""

    async def accept(self, serve: Serve) -> None:
        asks, requests = anyio.create_memory_object_stream[SessionMessage | Exception](_ROOM)
        tells, answers = anyio.create_memory_object_stream[SessionMessage](_ROOM)

        async def play() -> None:
            with asks:
                for response in self._script:
                    for call in response:
                        given = {"name": call.tool, "arguments": {"n": call.n}}
                        asks.send_nowait(_message(id=call.id, method="tools/call", params=given))
                    for _ in response:
                        while getattr((await answers.receive()).message, "method", None):
                            pass  # a notification, no answer

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(play)
            with requests, tells, answers:
                await serve((requests, tells))
