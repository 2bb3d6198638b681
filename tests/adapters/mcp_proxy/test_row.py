"""The proxy's verified capabilities, for its row of the matrix."""

from typing import Any

import psutil
import pytest

from proctor.adapters.mcp_proxy.adapter import McpProxyAdapter
from proctor.adapters.mcp_proxy.downstream import CommandUpstream
from proctor.policies import Capabilities, ToolCall
from proctor.supervisor.ports.adapter import GateAnswer
from proctor.supervisor.testing.adapter_fixture import Evidence

DENY = "{name: p, on_violation: %s, tool_rules: [{deny: [write], tell_model: not here}]}"


@pytest.mark.anyio
class TestProxy(Evidence):
    """With a real server."""

    row = "mcp"

    @pytest.fixture(autouse=True)
    def place(self, bench: Any) -> None:
        """The proxy, and its declared capabilities."""
        self.bench = bench
        adapter = McpProxyAdapter(CommandUpstream(bench.command), bench, warn=print)
        self.capabilities: Capabilities = adapter.capabilities

    async def test_a_denied_call_has_no_effect_and_the_next_one_runs(self) -> None:
        """Both are recorded before the server gets them. The server reports no tokens."""
        target = self.bench.dir / "never"
        async with self.bench.proxied(DENY % "deny") as proxied:
            denied = await proxied.outcome("write", path=str(target))
            allowed = await proxied.call("add", a=1, b=2)
            recorded = await proxied.events("tool_call_requested", "tool_call_denied")
            used = await proxied.events("token_usage_updated")

        assert (denied, target.exists(), allowed.structured_content) == ((True, "not here"), False, {"sum": 3})
        assert [event.type for event in recorded][:2] == ["tool_call_requested", "tool_call_denied"]
        assert self.bench.error is None
        assert used == []
        self.saw(self.capabilities, gate="all", deny_ends_turn=False, usage="none", reports_cost=False)

    async def test_an_input_of_the_gates_own_is_what_the_server_gets(self) -> None:
        """Not the one that the client sent."""

        async def other(call: ToolCall) -> GateAnswer:
            return GateAnswer(allowed=True, input={"a": 1, "b": 5})

        async with self.bench.gated(other) as client:
            result = await client.call_tool("add", {"a": 1, "b": 2})

        self.saw(self.capabilities, rewrite=result.structured_content == {"sum": 6})

    async def test_a_tool_that_no_call_could_pass_is_not_offered(self) -> None:
        """The others are."""
        async with self.bench.proxied(DENY % "deny") as proxied:
            offered = await proxied.tools()

        assert "add" in offered
        self.saw(self.capabilities, narrow="write" not in offered)

    async def test_a_cancel_ends_the_server(self) -> None:
        """By the policy: no process that the proxy started is alive."""
        before = psutil.Process().children(recursive=True)
        async with self.bench.proxied(DENY % "cancel") as proxied:
            started = [one for one in psutil.Process().children(recursive=True) if one not in before]
            refused, _ = await proxied.outcome("write", path=str(self.bench.dir / "never"))

        assert refused
        assert started
        alive = [one for one in started if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
        self.saw(self.capabilities, cancel_kills_children=not alive)
