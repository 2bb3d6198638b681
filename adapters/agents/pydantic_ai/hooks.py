"""The capability that gates the calls of one run and reports what it does."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.exceptions import SkipToolExecution
from pydantic_ai.messages import NativeToolCallPart, NativeToolReturnPart, TextPart, ThinkingPart

from proctor.policies.events import MessageReceived, TokenUsageUpdated, ToolCallCompleted, ToolCallStarted
from proctor.supervisor.run.tasks import tool_error

from ...kit.values import plain
from ..loop import ToolRefused
from ..loop.gate import is_forced, with_objects

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from pydantic_ai.messages import ModelResponse, ToolCallPart
    from pydantic_ai.models import ModelRequestContext
    from pydantic_ai.tools import RunContext, ToolDefinition
    from pydantic_ai.usage import RunUsage, UsageBase

    from proctor.policies.events import Event

    from ..loop import LoopGate


_FIELDS = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_tokens": "cache_read_tokens",
    "cache_write_tokens": "cache_write_tokens",
    "output_reasoning_tokens": "reasoning_tokens",
}


class Meter:
    """Reports to the gate of one run each response, then whatever else the run's own total says.

    The total also holds rejected attempts and the sub-agents that were given the run's usage.
    """

    def __init__(self, gate: LoopGate) -> None:
        self.gate = gate
        self._reported = dict.fromkeys(_FIELDS.values(), 0)
        self._model: str | None = None

    def of_response(self, response: ModelResponse) -> TokenUsageUpdated:
        """The usage of one response, with its cost in USD if the framework knows the price."""
        self._model = response.model_name
        return self._event(_numbers(response.usage), cost_usd=_cost(response))

    async def settle(self, total: RunUsage) -> None:
        """Report what the run used that no response told, before anything else is done."""
        now = _numbers(total)
        more = {name: max(0, now[name] - before) for name, before in self._reported.items()}
        if any(more.values()):
            await self.gate.report(self._event(more, cost_usd=None))

    def _event(self, numbers: dict[str, int], *, cost_usd: float | None) -> TokenUsageUpdated:
        for name, value in numbers.items():
            self._reported[name] += value
        fields: dict[str, Any] = dict(numbers)
        return TokenUsageUpdated(scope="delta", model=self._model, cost_usd=cost_usd, **fields)


def _numbers(usage: UsageBase) -> dict[str, int]:
    return {ours: int(getattr(usage, theirs, 0) or 0) for theirs, ours in _FIELDS.items()}


def _cost(response: ModelResponse) -> float | None:
    if not response.model_name or not response.usage.has_values():
        return None
    try:
        return float(response.cost().total_price)
    except (LookupError, ValueError):  # no price is known, or the response did not say what it used
        return None


def events_of(response: ModelResponse, turn: int) -> Iterator[Event]:
    """The messages of a response, and the calls that the model's provider ran itself, which nobody could hold."""
    blocks = list(_blocks(response))
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    if blocks:
        yield MessageReceived(content="\n".join(texts) if len(texts) == len(blocks) else blocks)
    for part in response.parts:
        if isinstance(part, NativeToolCallPart):
            yield ToolCallStarted(
                tool_call_id=part.tool_call_id,
                tool_name=part.tool_name,
                tool_input=plain(part.args_as_dict()),
                turn=turn,
            )
        elif isinstance(part, NativeToolReturnPart):
            yield ToolCallCompleted(
                tool_call_id=part.tool_call_id, tool_name=part.tool_name, tool_output=plain(part.content)
            )


def _blocks(response: ModelResponse) -> Iterator[dict[str, Any]]:
    for part in response.parts:
        if isinstance(part, TextPart) and part.content:
            yield {"type": "text", "text": part.content}
        elif isinstance(part, ThinkingPart) and part.content:
            yield {"type": "thinking", "thinking": part.content}


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
