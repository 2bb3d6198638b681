"""McpProxyAdapter: whatever an agent does through one MCP server, as a run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from itertools import count
from typing import Any, TypeAlias

import anyio
import msgspec

from proctor.policies.events import ErrorOccurred, RunCompleted
from proctor.policies.events.run_context import Capabilities, RunContext
from proctor.policies.policy import Policy
from proctor.supervisor.api.supervisor import Supervisor
from proctor.supervisor.errors import UsageError
from proctor.supervisor.launch.launch import new_id
from proctor.supervisor.ports.adapter import Launch, LaunchOptions, Provider
from proctor.supervisor.ports.store import Store

from ..kit.launch_options import USAGE, NoLaunchOptions, policy_parts, uncounted
from ..kit.process_tree import ProcessTree
from ..kit.provider import TaskProvider, at_work, provider_error
from .downstream import Downstream, Upstream, offered_tools
from .messages import Incoming, Outgoing, named_keys
from .relay import Relay, SharedByConnections
from .tools import Naming, Visibility, trusts, with_annotations

KEYS = "keys"
"""The launch option with the keys of inputs that the policy names."""


class ProxySession(TaskProvider):
    """A Provider: an adapter's clients, served until they have gone, or the run is ended."""

    what = "the connection to the MCP server"
    interrupt_s = 3.0

    def __init__(self, launch: Launch, adapter: McpProxyAdapter) -> None:
        super().__init__(launch)
        self._adapter = adapter
        self._relays: set[Relay] = set()
        self._tree = ProcessTree(mark=launch.mark)
        numbers = count(1)
        self._shared = SharedByConnections(
            gate=launch.gate,
            report=self.stream.send_and_wait,
            naming=adapter.naming,
            visibility=Visibility(launch.narrow, adapter.offered),
            new_id=lambda: f"call-{next(numbers)}",
            warn=adapter.warn,
            keys=frozenset(launch.options.options.get(KEYS, ())),
        )

    @property
    def tree(self) -> ProcessTree:
        """The server's processes."""
        return self._tree

    async def serve(self) -> None:
        """Serve the clients."""
        await self._adapter.downstream.accept(self._serve)

    async def end_processes(self) -> None:
        """End the server's processes; the run is over then, unless it has failed."""
        with anyio.CancelScope(shield=True):
            if self._tree.snapshot():
                await self._tree.kill()
        if self.failure is None:
            self.stream.send_nowait(RunCompleted())

    async def _serve(self, client: tuple[Incoming, Outgoing]) -> None:
        relay: Relay | None = None
        try:
            async with self._adapter.upstream.connect(self.launch.mark) as server:
                relay = Relay(self._shared, client, server)
                self._relays.add(relay)
                try:
                    await relay.run()
                finally:
                    self._relays.discard(relay)
        except Exception as failure:
            error = provider_error(failure, self.what)
            if relay is not None:
                await relay.answer_for_the_server(str(error))
            if self._adapter.downstream.ends_with_client:
                raise error from failure
            self._adapter.warn(str(error))
            await self.stream.send_and_wait(ErrorOccurred(code=error.code, message=str(error)))

    async def interrupt(self) -> dict[str, Any]:
        """Answer what is open, and hang up."""
        seen = self._tree.snapshot()
        async with anyio.create_task_group() as tasks:  # a client that does not read holds up no other
            for relay in self._relays:
                tasks.start_soon(relay.drain)
        await self._adapter.downstream.flush()
        self.scope.cancel()
        return {"seen": seen}


class McpProxyAdapter(NoLaunchOptions):
    """A proxy between agents and an MCP server; every `tools/call` passes the gate.

    With the name of the `server`, its tools are evaluated as `mcp__NAME__tool`, else by their own names. Only tools
    named in `offered` are offered; with None, all. `warn` gets each text for the operator.
    """

    name = "mcp"

    def __init__(
        self,
        upstream: Upstream,
        downstream: Downstream,
        *,
        server: str | None = None,
        offered: Collection[str] | None = None,
        warn: Callable[[str], None],
    ) -> None:
        self.upstream = upstream
        self.downstream = downstream
        self.naming = Naming(server)
        self.offered = offered
        self.warn = warn

    @property
    def capabilities(self) -> Capabilities:
        """The proxy's capabilities; MCP says nothing about tokens, cost or turns."""
        return Capabilities(
            gate="all",
            rewrite=True,
            usage="none",
            cancel_kills_children=True,
            narrow=True,
            tools=None if self.offered is None else tuple(sorted(self.offered)),
            mostly=self.naming.mostly(),
        )

    def compile(self, policy: Policy) -> LaunchOptions:
        """Nothing is expressed beforehand; the list of tools is narrowed during the run."""
        return LaunchOptions(options={KEYS: sorted(named_keys(policy))}, unexpressed=policy_parts(policy))

    @asynccontextmanager
    async def open(self, launch: Launch) -> AsyncIterator[Provider]:
        """Take clients; leaving ends their connections and the server's processes."""
        session = ProxySession(launch, self)
        async with at_work(session, session.serve):
            try:
                yield session
            finally:
                session.stream.abandon()


NOT_COUNTED = USAGE | {"max_turns"}
NO_USAGE = "MCP tells a server nothing of tokens, cost or turns"


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one proxy: its server, its clients and its policies.

    `trust_annotations` has every policy believe the server's annotations; without it only those do whose
    `metadata.trusted_servers` names `server`.
    """

    upstream: Upstream
    downstream: Downstream
    policies: Sequence[Policy]
    context: RunContext | None = None
    server: str | None = None
    trust_annotations: bool = False


Listening: TypeAlias = Callable[[Callable[[], Awaitable[None]]], AbstractAsyncContextManager[None]]
"""Calls a function if the program gets a signal to end meanwhile."""


async def serve(
    store: Store, serving: Serving, *, warn: Callable[[str], None], signals: Listening = lambda end: nullcontext()
) -> None:
    """Serve until the clients have gone, one of the `signals` comes, or a policy ends the run.

    Raises PolicyViolationError, ProviderError, StoreError, UsageError.
    """
    _check_name(serving.server)
    for line in uncounted(serving.policies, NOT_COUNTED, why=NO_USAGE):
        warn(line)
    policies, offered = await _believing(serving)
    adapter = McpProxyAdapter(serving.upstream, serving.downstream, server=serving.server, offered=offered, warn=warn)
    async with Supervisor(store) as supervisor:
        metadata = {"upstream": serving.upstream.label, "server": serving.server}
        handle = await supervisor.start(adapter, "", policies=policies, context=serving.context, metadata=metadata)
        async with signals(partial(handle.cancel, reason="the proxy was told to end")):
            await handle.wait_finished()
    result = await handle.wait()
    if result.status == "cancelled":
        warn(f"run `{result.run_id}` was cancelled")


async def _believing(serving: Serving) -> tuple[list[Policy], frozenset[str] | None]:
    """The policies with the annotations each believes, and what was offered when they were read."""
    trusted = [serving.trust_annotations or trusts(policy, serving.server) for policy in serving.policies]
    if not any(trusted):
        return list(serving.policies), None
    naming = Naming(serving.server)
    tools = await offered_tools(serving.upstream, new_id("run"))
    policies = [
        with_annotations([policy], tools, naming)[0] if believes else policy
        for policy, believes in zip(serving.policies, trusted, strict=True)
    ]
    return policies, frozenset(naming.judged(str(tool.get("name"))) for tool in tools)


def _check_name(server: str | None) -> None:
    if server is not None and (not server or "__" in server or any(sign in server for sign in "*?[] \n")):
        raise UsageError(f"server name `{server}` cannot stand in a tool's name; use letters, digits, `-` and `_`")
