"""The calls of agents that a tool runs: held at the gate of the run they are part of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic_ai.agent import Agent
from pydantic_ai.tools import RunContext
from pydantic_ai.toolsets import ToolsetTool, WrapperToolset

if TYPE_CHECKING:
    from .session import PydanticAISession


@dataclass
class GatedToolset(WrapperToolset[Any]):
    """Asks the gate before each call of the tools inside."""

    session: PydanticAISession

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Refused, the call gives the sub-agent's model the gate's text."""
        self.session.check_thread()
        await self.session.settle(ctx.usage)
        call_id = self.session.calls.within(str(ctx.tool_call_id))
        allowed, given = await self.session.asked(call_id, name, tool_args)
        if not allowed:
            return given
        with self.session.calls.inside(call_id):
            try:
                result = await super().call_tool(name, given, ctx, tool)
            except BaseException as error:
                self.session.calls.failed(call_id, error)
                raise
        await self.session.calls.completed(call_id, result)
        return result


@contextmanager
def gated(agents: Sequence[Agent[Any, Any]], session: PydanticAISession) -> Iterator[None]:
    """Within this context, and nowhere else, these agents' tools are gated."""
    with ExitStack() as stack:
        for agent in agents:
            toolsets = [GatedToolset(toolset, session) for toolset in agent.toolsets]
            stack.enter_context(agent.override(toolsets=toolsets, tools=[]))
        yield
