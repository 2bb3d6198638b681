"""Agents whose tools ask first. They are copies, so that the caller's own stay unchanged."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

from agents import Agent, CustomTool, FunctionTool, Handoff, RunContextWrapper, ToolInputGuardrail
from agents.tool import Tool

from proctor.policies.stream import tools as portable
from proctor.supervisor.run.foreign.isolation import tool_error

from ...kit.tool_names.frameworks import OPENAI_AGENTS, own_tools
from ...kit.values.jsonable import plain
from .executors import Hold, changed, held, is_held

NAME: Final = "proctor"
"""What the guardrails that ask are called."""
OnFailure = Callable[[Exception], None]
GuardOf = Callable[[FunctionTool | None], ToolInputGuardrail[Any]]
"""Makes the guardrail that asks the gate for one tool; None is any tool of an MCP server."""


class GatedAgents:
    """One copy of each agent a run meets, with everything it can hand over to.

    # INVARIANT: a copy's function tools ask the gate last, when every guardrail of the caller has passed.

    Args:
        guard_of: makes what asks the gate.
        hold: asks the gate for what the caller's own code does.
        failed: is told, in the tool's task, of an exception that the SDK turns into a result.
        narrowed: makes the model that an agent has be shown only what could be called.
    """

    def __init__(
        self, guard_of: GuardOf, hold: Hold, failed: OnFailure, narrowed: Callable[[Any], Any] | None
    ) -> None:
        self._guard_of = guard_of
        self._hold = hold
        self._failed = failed
        self._narrowed = narrowed
        self._copies: dict[int, tuple[Agent[Any], Agent[Any]]] = {}

    def of(self, agent: Agent[Any]) -> Agent[Any]:
        """The agent's copy; a copy is its own."""
        if id(agent) not in self._copies:
            made = agent.clone(tools=[self.gated(tool) for tool in agent.tools], handoffs=[])
            made.__class__ = _asking(type(made), self)
            if self._narrowed is not None:
                made.model = self._narrowed(agent.model)
            self._copies[id(agent)] = (agent, made)
            self._copies[id(made)] = (made, made)
            made.handoffs = [self._handoff(target) for target in agent.handoffs]
            made.mcp_servers = [self._server(server) for server in agent.mcp_servers]
        return self._copies[id(agent)][1]

    def gated(self, tool: Tool) -> Tool:
        """The tool, made to ask first; one that does is its own."""
        if not isinstance(tool, FunctionTool):
            return held(tool, self._hold)
        if any(guard.name == NAME for guard in tool.tool_input_guardrails or ()):
            return tool
        changes: dict[str, Any] = {
            "tool_input_guardrails": [*(tool.tool_input_guardrails or ()), self._guard_of(tool)],
        }
        if tool.timeout_seconds is not None:
            changes["timeout_error_function"] = self._telling(tool.timeout_error_function or _timed_out)
        # the SDK tells of exceptions only where its own text for them is used; a caller's function is wrapped
        own = getattr(tool, "_failure_error_function", None)
        if own is not None and not getattr(tool, "_use_default_failure_error_function", True):
            changes["_failure_error_function"] = self._telling(own)
        made = changed(tool, changes)
        # the copy's own: that of the original would answer errors with the original's functions
        return changed(made, {"on_invoke_tool": _contained(made.on_invoke_tool)})

    def _handoff(self, target: Any) -> Any:
        if isinstance(target, Agent):
            return self.of(target)
        assert isinstance(target, Handoff)
        invoke = target.on_invoke_handoff

        async def handed_over(context: RunContextWrapper[Any], arguments: str) -> Any:
            return self.of(await invoke(context, arguments))

        return dataclasses.replace(target, on_invoke_handoff=handed_over)

    def _server(self, server: Any) -> Any:
        """A copy that shares the open connection: the SDK takes a server's guardrails from the server."""
        made = copy.copy(server)
        made.tool_input_guardrails = [*(server.tool_input_guardrails or ()), self._guard_of(None)]

        async def call_tool(*args: Any, **kwargs: Any) -> Any:
            try:
                result = await server.call_tool(*args, **kwargs)
            except Exception as error:
                self._failed(error)
                raise
            if getattr(result, "is_error", getattr(result, "isError", False)):
                self._failed(RuntimeError(f"the server said that it failed: {plain(result.content)}"))
            return result

        made.call_tool = call_tool
        return made

    def _telling(self, own: Callable[..., Any]) -> Callable[..., Any]:
        async def tell(context: Any, error: Exception) -> Any:
            self._failed(error)
            text = own(context, error)
            return await text if inspect.isawaitable(text) else text

        return tell


def _contained(invoke: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Runs a tool; the SDK does so in a task of its own."""

    async def contained(*args: Any) -> Any:
        try:
            return await invoke(*args)
        except BaseException as raised:
            raise tool_error(raised)  # noqa: B904 - it is what was raised, or has that as its cause

    return contained


def _asking(kind: type[Agent[Any]], gated: GatedAgents) -> type[Agent[Any]]:
    """The agent's class, of which the tools that it finds when it runs ask first, too: those of a sandbox do."""

    class Asking(kind):  # type: ignore[misc, valid-type]
        async def get_all_tools(self, run_context: RunContextWrapper[Any]) -> list[Tool]:
            return [gated.gated(tool) for tool in await super().get_all_tools(run_context)]

    Asking.__name__ = Asking.__qualname__ = kind.__name__
    return Asking


def holds_every_call(agent: Any) -> bool:
    """Whether every tool that an agent could reach, through all its handoffs, can be held. Tools that an agent
    finds only when it runs, as one in a sandbox does, are unknown.
    """
    reached = list(_reached(agent))
    tools = [tool for one in reached if one is not None for tool in one.tools]
    plain_agents = all(one is not None and type(one).get_all_tools is Agent.get_all_tools for one in reached)
    return plain_agents and all(isinstance(tool, FunctionTool) or is_held(tool) for tool in tools)


def tools_of(agent: Any) -> tuple[portable.Tool, ...]:
    """The tools that an agent could reach, as far as they are known before it runs."""
    tools = [tool for one in _reached(agent) if one is not None for tool in one.tools]
    own: list[tuple[str, dict[str, Any]]] = [
        (tool.name, tool.params_json_schema if isinstance(tool, FunctionTool) else {"properties": {"input": {}}})
        for tool in tools
        if isinstance(tool, FunctionTool | CustomTool)
    ]
    brought = {getattr(tool, "type", tool.name) for tool in tools if not isinstance(tool, FunctionTool | CustomTool)}
    return own_tools(own, OPENAI_AGENTS, brought)


def _reached(agent: Any) -> Iterator[Any]:
    """An agent and those it hands over to, each once; None for a handoff that may go to any."""
    seen: set[int] = set()
    waiting = [agent]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        if one is not None:
            waiting += [each if isinstance(each, Agent) else _known_target(each) for each in one.handoffs]


def _known_target(target: Handoff[Any, Any]) -> Any:
    """The agent of a handoff that always goes to the same one."""
    reference = getattr(target, "_agent_ref", None)
    return reference() if reference is not None else None


def _timed_out(context: Any, error: Exception) -> str:
    return f"Tool '{context.tool_name}' timed out."
