"""Fixtures: a proxy in this process, on the test's own backend, between a real MCP client and a real
server process.
"""

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from proctor.adapters.mcp_proxy.adapter import McpProxyAdapter, Serving, serve
from proctor.adapters.mcp_proxy.downstream import CommandUpstream
from proctor.adapters.stores import SQLiteStore
from proctor.policies import Event, parse_policies
from proctor.supervisor import MemoryStore, Store
from proctor.supervisor.testing.adapter_fixture import Answering, Drive
from proctor.supervisor.testing.fakes import PATIENCE_S

pytest.importorskip("mcp", reason="needs the MCP library: pip install '.[mcp]'")

from mcp import Client

QUICK = Path(__file__).with_name("quick_server.py")
REAL = Path(__file__).with_name("server.py")


class _Pair:
    """The two ends of a connection in memory, the client's and the proxy's."""

    ends_with_client = True

    def __init__(self) -> None:
        self._to_proxy: tuple[MemoryObjectSendStream[Any], MemoryObjectReceiveStream[Any]]
        self._to_proxy = anyio.create_memory_object_stream[Any](0)
        self._to_client: tuple[MemoryObjectSendStream[Any], MemoryObjectReceiveStream[Any]]
        self._to_client = anyio.create_memory_object_stream[Any](0)

    async def accept(self, serve: Callable[[Any], Any]) -> None:
        await serve((self._to_proxy[1], self._to_client[0]))

    async def flush(self) -> None:
        """Nothing: every send waits."""

    def hang_up(self) -> None:
        """Close the proxy's end, as its process does when it exits."""
        self._to_proxy[1].close()
        self._to_client[0].close()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Any]:
        with self._to_client[1] as incoming, self._to_proxy[0] as outgoing:
            yield incoming, outgoing


class Proxied:
    """A client behind the proxy, and its observable state."""

    def __init__(self, client: Client, store: Store, notices: list[str], warnings: list[str]) -> None:
        self.client = client
        self.store = store
        self.notices = notices
        self.warnings = warnings
        self.noticed = anyio.Event()

    async def tools(self) -> list[str]:
        """The names that the client is shown."""
        return [tool.name for tool in (await self.client.list_tools()).tools]

    async def call(self, name: str, **arguments: Any) -> Any:
        return await self.client.call_tool(name, arguments)

    async def outcome(self, name: str, **arguments: Any) -> tuple[bool, str]:
        """Whether a call is a tool error, and its text."""
        result = await self.call(name, **arguments)
        return bool(result.is_error), result.content[0].text

    async def events(self, *types: str) -> list[Event]:
        """The stored events, of these types if any are given."""
        [run] = await self.store.runs()
        found = [event async for event in self.store.read(run.session_id)]
        return [event for event in found if not types or event.type in types]


class Bench:
    """Creates proxies; `error` is the last one's error."""

    def __init__(self, tmp_path: Path) -> None:
        self.dir = tmp_path
        self.command = [sys.executable, "-S", str(QUICK)]
        self.real_command = [sys.executable, str(REAL)]
        self.error: BaseException | None = None
        self.warned: list[str] = []

    def sqlite(self) -> SQLiteStore:
        """A store in a file that other processes can open."""
        return SQLiteStore(self.dir / "store.db")

    @asynccontextmanager
    async def proxied(
        self,
        policy: str,
        *,
        store: Store | None = None,
        command: list[str] | None = None,
        callbacks: dict[str, Any] | None = None,
        **serving: Any,
    ) -> AsyncIterator[Proxied]:
        """A connected client, which answers the server's requests with these. At exit it disconnects and waits for
        the proxy's end.
        """
        pair, kept, warnings = _Pair(), store or MemoryStore(), list[str]()
        serving.setdefault("upstream", CommandUpstream(command or self.command))
        order = Serving(downstream=pair, policies=parse_policies(policy), **serving)
        notices: list[str] = []
        seen: list[Proxied] = []

        async def on_message(message: Any) -> None:
            method = getattr(message, "method", None)
            if method is not None:
                notices.append(method)
                if seen:
                    seen[0].noticed.set()

        async def run() -> None:
            try:
                with anyio.CancelScope(shield=True):  # it ends when its client has disconnected
                    await serve(kept, order, warn=warnings.append)
            except Exception as error:
                self.error = error
            finally:
                pair.hang_up()

        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                answering = {"message_handler": on_message, **(callbacks or {})}
                async with Client(pair.client(), mode="legacy", **answering) as client:
                    seen.append(Proxied(client, kept, notices, warnings))
                    yield seen[0]

    @asynccontextmanager
    async def gated(self, answer: Answering) -> AsyncIterator[Client]:
        """A connected client behind the test's own gate."""
        pair = _Pair()
        adapter = McpProxyAdapter(CommandUpstream(self.command), pair, warn=self.warned.append)

        async def run() -> None:
            await Drive(adapter, answer=answer).run()
            pair.hang_up()

        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                async with Client(pair.client(), mode="legacy") as client:
                    yield client


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Proxies with the small server."""
    return Bench(tmp_path)
