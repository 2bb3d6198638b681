"""The capability that gates the calls of one run and reports what it does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.exceptions import SkipToolExecution
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import RunContext, ToolDefinition

from proctor.supervisor.run.foreign.isolation import tool_error

from ..loop import ToolRefused
from ..loop.inputs import with_objects
from ..loop.loop_gate import is_forced
from .meter import Meter
from .responses import events_of


@dataclass
class GateCapability(AbstractCapability[Any]):
    """Asks the gate before each call, after every other capability could change the input."""

    meter: Meter
    narrows: bool

    def get_ordering(self) -> CapabilityOrdering:
        """Innermost: what is judged is what runs."""
        return CapabilityOrdering(position="innermost")

    async def before_model_request(self, ctx: RunContext[Any], request_context: Any) -> Any:
        """A response is about to be asked for."""
        await self.meter.settle(ctx.usage)
        await self.meter.gate.turn()
        return self._narrowed(request_context) if self.narrows else request_context

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: Any, response: ModelResponse
    ) -> ModelResponse:
        """A response has come; what it used is judged before its calls are."""
        gate = self.meter.gate
        if response.usage.has_values():
            await gate.report(self.meter.of_response(response))
        for event in events_of(response, gate.turn_number):
            await gate.report(event)
        return response

    def _narrowed(self, request: ModelRequestContext) -> ModelRequestContext:
        """The request without the tools that could not be called now.

        The agent keeps them: an attempt at one is put to the gate like any other call.
        """
        if is_forced((request.model_settings or {}).get("tool_choice")):
            return request
        offered = request.model_request_parameters
        callable_now = set(self.meter.gate.narrow([tool.name for tool in offered.function_tools]))
        kept = [tool for tool in offered.function_tools if tool.name in callable_now]
        return replace(request, model_request_parameters=replace(offered, function_tools=kept))

    async def before_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: dict[str, Any]
    ) -> dict[str, Any]:
        """Ask the gate, after all that may change the input; a refused call gives the model the gate's text."""
        gate = self.meter.gate
        await self.meter.settle(ctx.usage)
        try:
            admitted, given = await gate.admit(call.tool_name, args, call_id=call.tool_call_id)
        except ToolRefused as refusal:
            raise SkipToolExecution(refusal.tell_model) from None
        gate.calls.enter(admitted.id)
        return with_objects(args, given)

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        handler: Callable[[dict[str, Any]], Awaitable[Any]],
    ) -> Any:
        """Report the outcome of an allowed call; the handler asks the gate itself."""
        calls = self.meter.gate.calls
        with calls.around():
            try:
                result = await handler(args)
            except SkipToolExecution as skipped:
                await calls.completed(call.tool_call_id, skipped.result)
                raise
            except BaseException as raised:
                error = tool_error(raised)
                calls.failed(call.tool_call_id, error)
                raise error  # noqa: B904 - it is what was raised, or has that as its cause
        await self.meter.settle(ctx.usage)
        await calls.completed(call.tool_call_id, result)
        return result
