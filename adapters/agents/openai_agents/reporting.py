"""The hooks that report a run, in front of the caller's own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from agents import Agent, ModelResponse, RunContextWrapper, RunHooks, ShellTool
from agents.run_config import ToolErrorFormatter, ToolErrorFormatterArgs
from agents.tool import Tool
from agents.tool_context import ToolContext

from ..loop import LoopGate
from .executors import is_held
from .guard import ToolGuard
from .responses import events_of, usage_of


class Reporting(RunHooks[Any]):
    """Reports to the gate first, then to the caller's hooks; `model_of` names the model of an agent, if known."""

    def __init__(
        self,
        gate: LoopGate,
        guard: ToolGuard,
        model_of: Callable[[Agent[Any]], str | None],
        own: RunHooks[Any] | None,
    ) -> None:
        self._gate = gate
        self._guard = guard
        self._model_of = model_of
        self._own: RunHooks[Any] = own or RunHooks()
        for name in ("on_agent_start", "on_agent_end", "on_handoff", "on_tool_start"):
            setattr(self, name, getattr(self._own, name))

    async def on_llm_start(
        self, context: RunContextWrapper[Any], agent: Agent[Any], system_prompt: str | None, input_items: Any
    ) -> None:
        """A response is about to be asked for."""
        await self._gate.turn()
        await self._own.on_llm_start(context, agent, system_prompt, input_items)

    async def on_llm_end(self, context: RunContextWrapper[Any], agent: Agent[Any], response: ModelResponse) -> None:
        """A response has come; what it used is judged before its calls are."""
        usage = usage_of(response, self._model_of(agent))
        if usage is not None:
            await self._gate.report(usage)
        shells = next((is_held(tool) for tool in agent.tools if isinstance(tool, ShellTool)), False)
        turn, parent = self._gate.turn_number, self._gate.calls.parent()
        for event in events_of(response, turn=turn, parent=parent, local_shell=shells):
            await self._gate.report(event)
        await self._own.on_llm_end(context, agent, response)

    async def on_tool_end(self, context: RunContextWrapper[Any], agent: Any, tool: Tool, result: object) -> None:
        """A call is done."""
        if isinstance(context, ToolContext):
            await self._guard.done(result)
        await self._own.on_tool_end(context, agent, tool, result)


class TellingFormatter:
    """Formats errors as the caller's formatter does, and reports tools that raised to the guard."""

    def __init__(self, guard: ToolGuard, own: ToolErrorFormatter | None) -> None:
        self._guard = guard
        self._own = own

    async def __call__(self, args: ToolErrorFormatterArgs[Any]) -> str | None:
        """The text for the model; None leaves it to the SDK."""
        if args.kind == "tool_exception":
            self._guard.failed(args.error or Exception(args.default_message))
        if self._own is None:
            return None
        text = self._own(args)
        return await text if inspect.isawaitable(text) else text
