"""McpProxyAdapter: whatever an agent does through one MCP server, as a run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager

from proctor.policies.policy import Policy
from proctor.policies.stream.calls import Capabilities
from proctor.supervisor.ports.adapters import Launch, LaunchOptions, Provider

from ..kit.launch_options import policy_parts
from ..kit.tasks import helpers
from .downstream.connections import Downstream
from .names import Naming
from .protocol import named_keys
from .session import KEYS, ProxySession
from .upstream import Upstream


class McpProxyAdapter:
    """Stands between agents and an MCP server; every `tools/call` asks the gate.

    Args:
        upstream: the server.
        downstream: where agents connect.
        server: the server's name; tools are then judged as `mcp__NAME__tool`, else by their own names.
        offered: the names beyond which nothing is offered; None knows no such bound.
        warn: is told what the operator should know.
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
        self._upstream = upstream
        self._downstream = downstream
        self._naming = Naming(server)
        self._offered = offered
        self._warn = warn

    @property
    def capabilities(self) -> Capabilities:
        """What it can do; MCP says nothing of tokens, cost or turns."""
        return Capabilities(
            gate="all",
            rewrite=True,
            usage="none",
            cancel_kills_children=True,
            narrow=True,
            tools=None if self._offered is None else tuple(sorted(self._offered)),
            mostly=self._naming.mostly(),
        )

    async def prepare(self) -> None:
        """Nothing to check: the server is started when a client comes."""

    def compile(self, policy: Policy) -> LaunchOptions:
        """Nothing is expressed beforehand; the list of tools is narrowed as the run goes on."""
        return LaunchOptions(options={KEYS: sorted(named_keys(policy))}, unexpressed=policy_parts(policy))

    @asynccontextmanager
    async def open(self, launch: Launch) -> AsyncIterator[Provider]:
        """Take clients; leaving ends their connections and the server's processes."""
        session = ProxySession(
            launch,
            self._upstream,
            self._downstream,
            naming=self._naming,
            offered=self._offered,
            warn=self._warn,
        )
        async with helpers() as tasks:
            tasks.start_soon(session.work)
            try:
                yield session
            finally:
                session.abandon()
