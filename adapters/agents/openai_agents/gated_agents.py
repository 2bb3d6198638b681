"""Copies of agents whose tools ask the gate first; the caller's own agents stay unchanged."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

from agents import (
    Agent,
    ApplyPatchTool,
    CustomTool,
    FunctionTool,
    Handoff,
    LocalShellTool,
    RunContextWrapper,
    ShellTool,
)
from agents.editor import ApplyPatchOperation, ApplyPatchResult
from agents.tool import ShellCallOutcome, ShellCommandOutput, ShellResult, Tool

from proctor.policies.events import run_context as portable
from proctor.supervisor.run.tasks import tool_error

from ...kit.function_tools import OPENAI_AGENTS, own_tools
from ...kit.values import to_jsonable
from ..loop.gate import ToolRefused
from .hooks import NAME, ToolGuard, is_held

T = TypeVar("T", bound=Tool)
_Call: TypeAlias = tuple[str, dict[str, Any], str | None]
_patching: ContextVar[str | None] = ContextVar("proctor_patching", default=None)
"""The call whose patches this code applies, which the SDK does not pass to an editor."""


def held(tool: Tool, guard: ToolGuard) -> Tool:
    """A copy of a tool whose code asks first; the tool itself if it cannot, or already does."""
    if isinstance(tool, LocalShellTool):
        return _with(tool, executor=_Asks(tool.executor, _local_shell, str, guard))
    if isinstance(tool, ShellTool) and tool.executor is not None:
        return _with(tool, executor=_Asks(tool.executor, _shell, _exited, guard))
    if isinstance(tool, ApplyPatchTool):
        return _with(tool, editor=_Editor(tool.editor, guard), needs_approval=_noting(tool.needs_approval))
    if isinstance(tool, CustomTool):
        return _with(tool, on_invoke_tool=_Asks(tool.on_invoke_tool, _custom, str, guard))
    return tool


def changed(tool: T, changes: Mapping[str, Any]) -> T:
    """A copy of a tool with other fields, also if its class has another constructor."""
    made = copy.copy(tool)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def _with(tool: Tool, **changes: Any) -> Tool:
    if any(isinstance(getattr(tool, name), _Asks | _Editor) for name in changes):
        return tool
    return changed(tool, changes)


@dataclass(eq=False)
class _Asks:
    """The caller's function `act`, behind the gate. `call_of` returns the tool, the input to evaluate and the call's
    id for its arguments; `refusal` its result for the text of a denial.
    """

    _act: Callable[..., Any]
    _call_of: Callable[..., _Call]
    _refusal: Callable[[str], Any]
    _guard: ToolGuard

    async def __call__(self, *given: Any) -> Any:
        name, tool_input, call_id = self._call_of(*given)
        try:
            return await self._guard.hold(name, tool_input, lambda: self._act(*given), call_id)
        except ToolRefused as refusal:
            return self._refusal(refusal.tell_model)


class _Editor:
    """An editor that asks before each operation of a patch; operations of one call ask one after another."""

    def __init__(self, editor: Any, guard: ToolGuard) -> None:
        self.create_file = _Asks(editor.create_file, _patch, _not_applied, guard)
        self.update_file = _Asks(editor.update_file, _patch, _not_applied, guard)
        self.delete_file = _Asks(editor.delete_file, _patch, _not_applied, guard)


def _local_shell(request: Any) -> _Call:
    return "local_shell", {"action": to_jsonable(request.data.action)}, request.data.call_id


def _shell(request: Any) -> _Call:
    return "shell", {"action": _given(to_jsonable(request.data.action))}, request.data.call_id


def _custom(context: Any, text: str) -> _Call:
    return context.tool_name, {"input": text}, context.tool_call_id


def _patch(operation: ApplyPatchOperation) -> _Call:
    fields = {name: getattr(operation, name) for name in ("type", "path", "diff", "move_to")}
    return "apply_patch", {"operation": _given(fields)}, _patching.get()


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _exited(text: str) -> ShellResult:
    return ShellResult(output=[ShellCommandOutput(stderr=text, outcome=ShellCallOutcome(type="exit", exit_code=1))])


def _not_applied(text: str) -> ApplyPatchResult:
    return ApplyPatchResult(status="failed", output=text)


def _noting(own: Any) -> Callable[[Any, Any, str], Awaitable[bool]]:
    """The caller's own approval setting, which the SDK calls before each patch; notes the call's id."""

    async def needs_approval(context: Any, operation: Any, call_id: str) -> bool:
        _patching.set(call_id)
        wanted = own(context, operation, call_id) if callable(own) else own
        return bool(await wanted if inspect.isawaitable(wanted) else wanted)

    return needs_approval


@dataclass(eq=False)
class GatedAgents:
    """One copy of each agent a run meets, with everything it can hand over to; `narrowed` wraps an agent's model, so
    that it is offered only the tools that could be called.

    # INVARIANT: a copy's function tools ask the gate last, when every guardrail of the caller has passed.
    """

    _guard: ToolGuard
    _narrowed: Callable[[Any], Any] | None
    _copies: dict[int, tuple[Agent[Any], Agent[Any]]] = field(default_factory=dict)

    def of(self, agent: Agent[Any]) -> Agent[Any]:
        """The agent's copy; a copy is its own."""
        if id(agent) not in self._copies:
            made = agent.clone(tools=[self.gated(tool) for tool in agent.tools], handoffs=[])
            made.__class__ = _gated_class(type(made), self)
            if self._narrowed is not None:
                made.model = self._narrowed(agent.model)
            self._copies[id(agent)] = (agent, made)
            self._copies[id(made)] = (made, made)
            made.handoffs = [self._handoff(target) for target in agent.handoffs]
            made.mcp_servers = [self._server(server) for server in agent.mcp_servers]
        return self._copies[id(agent)][1]

    def gated(self, tool: Tool) -> Tool:
        """The tool, made to ask first."""
        if not isinstance(tool, FunctionTool):
            return held(tool, self._guard)
        if any(guard.name == NAME for guard in tool.tool_input_guardrails or ()):
            return tool
        changes: dict[str, Any] = {
            "tool_input_guardrails": [*(tool.tool_input_guardrails or ()), self._guard.of(tool)]
        }
        if tool.timeout_seconds is not None:
            changes["timeout_error_function"] = self._reporting(tool.timeout_error_function or _timed_out)
        # the SDK tells of exceptions only where its own text for them is used; a caller's function is wrapped
        own = getattr(tool, "_failure_error_function", None)
        if own is not None and not getattr(tool, "_use_default_failure_error_function", True):
            changes["_failure_error_function"] = self._reporting(own)
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

        return replace(target, on_invoke_handoff=handed_over)

    def _server(self, server: Any) -> Any:
        """A copy that shares the open connection, with guardrails, which the SDK takes from the server."""
        made = copy.copy(server)
        made.tool_input_guardrails = [*(server.tool_input_guardrails or ()), self._guard.of(None)]

        async def call_tool(*args: Any, **kwargs: Any) -> Any:
            try:
                result = await server.call_tool(*args, **kwargs)
            except Exception as error:
                self._guard.failed(error)
                raise
            if getattr(result, "is_error", getattr(result, "isError", False)):
                self._guard.failed(RuntimeError(f"the server said that it failed: {to_jsonable(result.content)}"))
            return result

        made.call_tool = call_tool
        return made

    def _reporting(self, own: Callable[..., Any]) -> Callable[..., Any]:
        async def reported(context: Any, error: Exception) -> Any:
            self._guard.failed(error)
            text = own(context, error)
            return await text if inspect.isawaitable(text) else text

        return reported


def _contained(invoke: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Runs a tool; the SDK does so in a task of its own."""

    async def contained(*args: Any) -> Any:
        try:
            return await invoke(*args)
        except BaseException as raised:
            raise tool_error(raised)  # noqa: B904 - it is what was raised, or has that as its cause

    return contained


def _gated_class(kind: type[Agent[Any]], gated: GatedAgents) -> type[Agent[Any]]:
    """A subclass of the agent's class whose tools found at run time, as in a sandbox, ask first too."""

    class Gated(kind):  # type: ignore[misc, valid-type]
        async def get_all_tools(self, run_context: RunContextWrapper[Any]) -> list[Tool]:
            return [gated.gated(tool) for tool in await super().get_all_tools(run_context)]

    Gated.__name__ = Gated.__qualname__ = kind.__name__
    return Gated


def holds_every_call(agent: Any) -> bool:
    """Whether every tool that an agent could reach, through all its handoffs, can be held; not so for tools that are
    found at run time, as in a sandbox.
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
