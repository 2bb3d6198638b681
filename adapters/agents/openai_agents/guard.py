"""Guardrails that ask the gate before a tool of the SDK runs, and report its outcome."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from agents import FunctionTool, ToolGuardrailFunctionOutput, ToolInputGuardrail, ToolInputGuardrailData

from proctor.policies.stream.calls import ToolCall
from proctor.policies.stream.marks import same_input

from ..loop import LoopGate, ToolRefused
from .arguments import UnreadableArgumentsError, judged_input
from .gated_agents import NAME

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
        """The call this code is run by is done."""
        call_id = self._gate.calls.parent()
        if call_id is not None:
            await self._gate.calls.completed(call_id, result)

    def failed(self, error: Exception) -> None:
        """The tool of the call this code is run by raised, which the SDK turns into a result."""
        call_id = self._gate.calls.parent()
        if call_id is not None:
            self._gate.calls.failed(call_id, error)

    async def _judge(self, tool: FunctionTool | None, data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        context, calls = data.context, self._gate.calls
        unusable: str | None = None
        try:
            judged = judged_input(tool, context.tool_arguments)
        except UnreadableArgumentsError as error:  # judged and recorded as the text it is; it never runs
            judged, unusable = {"input": context.tool_arguments}, str(error)
        try:
            call, given = await self._gate.admit(context.tool_name, judged, call_id=context.tool_call_id)
        except ToolRefused as refusal:
            return ToolGuardrailFunctionOutput.reject_content(refusal.tell_model)
        if not same_input(given, call.input):
            unusable = _OTHER_INPUT
        if unusable is not None:
            calls.failed(call.id, unusable)
            return ToolGuardrailFunctionOutput.reject_content(unusable)
        calls.enter(call.id)
        return ToolGuardrailFunctionOutput.allow()
