"""Guardrails that ask the gate before a tool of the SDK runs, and report its outcome."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any, Final

from agents import (
    Agent,
    ApplyPatchTool,
    CustomTool,
    FunctionTool,
    LocalShellTool,
    RunContextWrapper,
    RunHooks,
    ShellTool,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolInputGuardrailData,
)
from agents import ModelResponse as AgentsModelResponse
from agents.function_schema import FuncSchema, function_schema
from agents.items import ModelResponse
from agents.run_config import ToolErrorFormatter, ToolErrorFormatterArgs
from agents.tool import Tool
from agents.tool_context import ToolContext

from proctor.policies.events import Event, MessageReceived, TokenUsageUpdated
from proctor.policies.events.calls import ToolCall, same_input
from proctor.policies.values.json_values import unique_members

from ...kit.client_tools import mcp_tool_name
from ...kit.trace_lines import tool_input
from ...kit.values import is_finite, to_jsonable
from ..loop.gate import LoopGate, ToolRefused


class UnreadableArgumentsError(ValueError):
    """Arguments that a tool could read differently from the gate; the text is for the model."""


def evaluated_input(tool: FunctionTool | None, text: str) -> dict[str, Any]:
    """The input that the gate evaluates: for a tool made of a Python function, the function's arguments; for one of
    an MCP server (None), the arguments as the model wrote them. Raises UnreadableArgumentsError: no JSON object, a
    key given twice, a number that is not finite, or values that the function does not take.
    """
    given = _decoded(text)
    function = getattr(tool, "__wrapped__", None)
    found = given if function is None else _validated(function, given)
    if not is_finite(found):
        raise UnreadableArgumentsError("a number in the arguments is not finite")
    evaluated: dict[str, Any] = to_jsonable(found)
    return evaluated


def _decoded(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}", object_pairs_hook=unique_members, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise UnreadableArgumentsError(f"the arguments are not a JSON object: {error}") from error
    if not isinstance(found, dict):
        raise UnreadableArgumentsError("the arguments are not a JSON object")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"`{name}` is not JSON")


def _validated(function: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    schema = _schema(function)
    try:
        values = vars(schema.params_pydantic_model(**given))
    except (ValueError, TypeError) as error:
        raise UnreadableArgumentsError(f"the arguments do not fit the tool: {error}") from error
    found: dict[str, Any] = {}
    for index, (name, parameter) in enumerate(schema.signature.parameters.items()):
        if schema.takes_context and index == 0:
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            found = {**(values.get(name) or {}), **found}
        else:
            found[name] = values.get(name)
    return found


@lru_cache(1024)
def _schema(function: Callable[..., Any]) -> FuncSchema:
    return function_schema(function, use_docstring_info=False, strict_json_schema=False)


NAME: Final = "proctor"
"""The name of the guardrails that ask."""
_OTHER_INPUT: Final = "another input was allowed, and this SDK cannot change one"


class ToolGuard:
    """The gate of one run as guardrails of its tools; the SDK runs a tool in a task that the guardrail starts."""

    def __init__(self, gate: LoopGate) -> None:
        self._gate = gate

    def of(self, tool: FunctionTool | None) -> ToolInputGuardrail[object]:
        """The guardrail of one tool; None is any tool of an MCP server."""
        return ToolInputGuardrail(guardrail_function=partial(self._judge, tool), name=NAME)

    async def hold(self, name: str, tool_input: dict[str, Any], act: Callable[[], Any], call_id: str | None) -> Any:
        """Propose a call that the caller's own code performs for the SDK, and perform it. Raises ToolRefused."""

        async def run(given: dict[str, Any]) -> Any:
            if not same_input(given, tool_input):
                raise ToolRefused(ToolCall(id=call_id or "", name=name, input=tool_input), _OTHER_INPUT)
            result = act()
            return await result if inspect.isawaitable(result) else result

        return await self._gate.call(name, tool_input, run, call_id=call_id)

    async def done(self, result: object) -> None:
        """Report the call that runs this code as completed."""
        call_id = self._gate.calls.parent()
        if call_id is not None:
            await self._gate.calls.completed(call_id, result)

    def failed(self, error: Exception) -> None:
        """Report that the tool of the call that runs this code raised, which the SDK turns into a result."""
        call_id = self._gate.calls.parent()
        if call_id is not None:
            self._gate.calls.failed(call_id, error)

    async def _judge(self, tool: FunctionTool | None, data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        context, calls = data.context, self._gate.calls
        unusable: str | None = None
        try:
            evaluated = evaluated_input(tool, context.tool_arguments)
        except UnreadableArgumentsError as error:  # evaluated and recorded as the text it is; it never runs
            evaluated, unusable = {"input": context.tool_arguments}, str(error)
        try:
            call, given = await self._gate.admit(context.tool_name, evaluated, call_id=context.tool_call_id)
        except ToolRefused as refusal:
            return ToolGuardrailFunctionOutput.reject_content(refusal.tell_model)
        if not same_input(given, call.input):
            unusable = _OTHER_INPUT
        if unusable is not None:
            calls.failed(call.id, unusable)
            return ToolGuardrailFunctionOutput.reject_content(unusable)
        calls.enter(call.id)
        return ToolGuardrailFunctionOutput.allow()


HOSTED = frozenset(("web_search", "file_search", "code_interpreter", "image_generation", "mcp"))
"""Calls that the model provider has run when its response arrives."""
LOCAL = frozenset(("function", "custom_tool", "local_shell", "apply_patch"))
"""Calls that the caller's code runs, which asks the gate itself."""
_FAILED = ("failed", "incomplete")
_NOT_INPUT = ("id", "type", "status", "call_id")


def usage_of(response: ModelResponse, model: str | None) -> TokenUsageUpdated | None:
    """The tokens that a response used; None if it does not say."""
    usage = response.usage
    if not usage.input_tokens and not usage.output_tokens:
        return None
    return TokenUsageUpdated(
        scope="delta",
        model=model,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=getattr(usage.input_tokens_details, "cached_tokens", 0) or 0,
        cache_write_tokens=getattr(usage.input_tokens_details, "cache_write_tokens", 0) or 0,
        reasoning_tokens=getattr(usage.output_tokens_details, "reasoning_tokens", 0) or 0,
    )


def events_of(response: ModelResponse, gate: LoopGate, *, local_shell: bool = False) -> Iterator[Event]:
    """The messages of a turn, and its calls that never ask: those of hosted tools and of computers.

    `local_shell`: whether a `shell_call` runs on this machine, not at the model provider.
    """
    for item in response.output:
        fields = to_jsonable(item)
        if not isinstance(fields, dict):
            continue
        kind = str(fields.get("type", ""))
        if kind == "message":
            texts = [part.get("text") or part.get("refusal") or "" for part in fields.get("content") or ()]
            yield MessageReceived(content="\n".join(texts))
        elif kind.endswith("_call"):
            kind = kind.removesuffix("_call")
            if kind not in LOCAL and not (local_shell and kind == "shell"):
                yield from _ungated(fields, kind, gate)


def _ungated(fields: dict[str, Any], kind: str, gate: LoopGate) -> Iterator[Event]:
    call_id = str(fields.get("call_id") or fields.get("id"))
    if kind == "mcp":
        name = mcp_tool_name(str(fields.get("server_label")), str(fields.get("name")))
        given = tool_input(fields.get("arguments"))
    else:
        name = kind
        given = {key: value for key, value in fields.items() if key not in _NOT_INPUT and value is not None}
    call = gate.calls.unasked(call_id, name, given, gate.turn_number)
    yield call.started()
    if (error := fields.get("error")) or fields.get("status") in _FAILED:
        yield call.ended(error or fields["status"], failed=True)
    elif kind in HOSTED:
        output = fields.get("output") or fields.get("results") or fields.get("result") or fields.get("status")
        yield call.ended(output, failed=False)


def is_held(tool: Tool) -> bool:
    """Whether calls of such a tool can be held. A computer's cannot, as the SDK has no result for a denied action
    that answers with a screenshot.
    """
    return isinstance(tool, LocalShellTool | ApplyPatchTool | CustomTool) or (
        isinstance(tool, ShellTool) and tool.executor is not None
    )


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
        """Begin a turn."""
        await self._gate.turn()
        await self._own.on_llm_start(context, agent, system_prompt, input_items)

    async def on_llm_end(
        self, context: RunContextWrapper[Any], agent: Agent[Any], response: AgentsModelResponse
    ) -> None:
        """Report a turn's usage before its calls are proposed."""
        usage = usage_of(response, self._model_of(agent))
        if usage is not None:
            await self._gate.report(usage)
        shells = next((is_held(tool) for tool in agent.tools if isinstance(tool, ShellTool)), False)
        for event in events_of(response, self._gate, local_shell=shells):
            await self._gate.report(event)
        await self._own.on_llm_end(context, agent, response)

    async def on_tool_end(self, context: RunContextWrapper[Any], agent: Any, tool: Tool, result: object) -> None:
        """Report a completed call."""
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
