"""The calls of agents that a tool runs: held at the gate of the run they are part of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from pydantic_ai.agent import Agent
from pydantic_ai.tools import RunContext
from pydantic_ai.toolsets import ToolsetTool, WrapperToolset

from ..loop import ToolRefused
from ..loop.inputs import with_objects
from .meter import Meter


@dataclass
class GatedToolset(WrapperToolset[Any]):
    """Asks the gate before each call of the tools inside."""

    meter: Meter

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Ask the gate; a refused call gives the sub-agent's model the gate's text."""
        await self.meter.settle(ctx.usage)
        run = super().call_tool

        async def act(given: dict[str, Any]) -> Any:
            return await run(name, with_objects(tool_args, given), ctx, tool)

        try:
            return await self.meter.gate.call(name, tool_args, act, call_id=str(ctx.tool_call_id))
        except ToolRefused as refusal:
            return refusal.tell_model


@contextmanager
def gated(agents: Sequence[Agent[Any, Any]], meter: Meter) -> Iterator[None]:
    """Within this context, and nowhere else, these agents' tools are gated."""
    with ExitStack() as stack:
        for agent in agents:
            toolsets = [GatedToolset(toolset, meter) for toolset in agent.toolsets]
            stack.enter_context(agent.override(toolsets=toolsets, tools=[]))
        yield
