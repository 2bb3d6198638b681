"""The hooks that report a run, in front of the caller's own."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from agents import Agent, ModelResponse, RunContextWrapper, RunHooks
from agents.run_config import ToolErrorFormatter, ToolErrorFormatterArgs
from agents.tool import Tool
from agents.tool_context import ToolContext

if TYPE_CHECKING:
    from .session import OpenAIAgentsSession


class Reporting(RunHooks[Any]):
    """Tells the session first, then the caller's hooks."""

    def __init__(self, session: OpenAIAgentsSession, own: RunHooks[Any] | None) -> None:
        self._session = session
        self._own: RunHooks[Any] = own or RunHooks()

    async def on_llm_start(
        self, context: RunContextWrapper[Any], agent: Agent[Any], system_prompt: str | None, input_items: Any
    ) -> None:
        """A response is about to be asked for."""
        await self._session.begin_turn()
        await self._own.on_llm_start(context, agent, system_prompt, input_items)

    async def on_llm_end(self, context: RunContextWrapper[Any], agent: Agent[Any], response: ModelResponse) -> None:
        """A response has come; what it used is judged before its calls are."""
        await self._session.responded(agent, response)
        await self._own.on_llm_end(context, agent, response)

    async def on_agent_start(self, context: Any, agent: Any) -> None:
        """An agent takes over."""
        await self._own.on_agent_start(context, agent)

    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        """An agent has its final output."""
        await self._own.on_agent_end(context, agent, output)

    async def on_handoff(self, context: RunContextWrapper[Any], from_agent: Any, to_agent: Any) -> None:
        """One agent hands over to another."""
        await self._own.on_handoff(context, from_agent, to_agent)

    async def on_tool_start(self, context: RunContextWrapper[Any], agent: Any, tool: Tool) -> None:
        """A call begins; the gate has recorded it."""
        await self._own.on_tool_start(context, agent, tool)

    async def on_tool_end(self, context: RunContextWrapper[Any], agent: Any, tool: Tool, result: object) -> None:
        """A call is done."""
        if isinstance(context, ToolContext):
            await self._session.done(result)
        await self._own.on_tool_end(context, agent, tool, result)


class TellingFormatter:
    """Formats errors as the caller's formatter does, and tells the session of tools that raised."""

    def __init__(self, session: OpenAIAgentsSession, own: ToolErrorFormatter | None) -> None:
        self._session = session
        self._own = own

    async def __call__(self, args: ToolErrorFormatterArgs[Any]) -> str | None:
        """The text for the model; None leaves it to the SDK."""
        if args.kind == "tool_exception":
            self._session.call_failed(args.error or Exception(args.default_message))
        if self._own is None:
            return None
        said = self._own(args)
        return await said if inspect.isawaitable(said) else said
