"""A run of an agent of pydantic-ai: its history, its usage, and its gated tools and subagents."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pydantic_ai.agent import Agent
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.exceptions import SkipToolExecution, UsageLimitExceeded
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    PartDeltaEvent,
    PartStartEvent,
    SystemPromptPart,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import RunContext, ToolDefinition
from pydantic_ai.toolsets import ToolsetTool, WrapperToolset
from pydantic_ai.usage import RunUsage, UsageBase, UsageLimits

from proctor.policies.events import Event, MessageReceived, MessageStreamed, TokenUsageUpdated
from proctor.supervisor.run.tasks import tool_error

from ...kit.call_book import ClientCall
from ...kit.client_tools import mcp_tool_name
from ...kit.trace_lines import tool_input
from ...kit.transcript import TranscriptMessage, TranscriptTurn, conversation
from ...kit.values import to_jsonable
from ..loop.gate import LoopGate, ToolRefused, is_forced, with_objects

if TYPE_CHECKING:
    from ..loop.adapter import Histories


_COUNTED = {
    "total_tokens_limit": "total_tokens",
    "input_tokens_limit": "input_tokens",
    "output_tokens_limit": "output_tokens",
    "request_limit": "requests",
}
"""The figure of a RunUsage that each limit bounds."""


def tightened(own: Any, options: dict[str, Any], used: RunUsage) -> Any:
    """The caller's UsageLimits, or the framework's default, with the compiled limits that are lower once what was
    `used` before the run is added to them, as the framework counts that too.
    """
    limits = own or UsageLimits()
    ours = {name: value + getattr(used, _COUNTED[name]) for name, value in options.items()}
    lower = {
        name: value for name, value in ours.items() if getattr(limits, name) is None or value < getattr(limits, name)
    }
    return replace(limits, **lower)


def messages_of(transcript: Sequence[Event]) -> list[ModelMessage]:
    """The conversation in those events as the framework's messages."""
    messages: list[ModelMessage] = []
    for part in conversation(transcript):
        if isinstance(part, TranscriptMessage):
            prompt = SystemPromptPart(part.text) if part.role == "system" else UserPromptPart(part.text)
            messages.append(ModelRequest(parts=[prompt]))
        else:
            messages.extend(_exchange(part))
    return messages


def _exchange(response: TranscriptTurn) -> list[ModelMessage]:
    parts: list[Any] = [TextPart(text) for text in response.texts]
    parts += [ToolCallPart(call.name, call.input, tool_call_id=call.id) for call in response.calls]
    returns = [
        ToolReturnPart(tool_name=call.name, content=call.result, tool_call_id=call.id) for call in response.calls
    ]
    answered: list[ModelMessage] = [ModelRequest(parts=returns)] if returns else []
    return [ModelResponse(parts=parts), *answered]


@dataclass
class GatedToolset(WrapperToolset[Any]):
    """Asks the gate before each call of the tools inside."""

    meter: Meter

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Ask the gate; the result of a denied call is the gate's text."""
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
    """Gate these agents' tools within this context only."""
    with ExitStack() as stack:
        for agent in agents:
            toolsets = [GatedToolset(toolset, meter) for toolset in agent.toolsets]
            stack.enter_context(agent.override(toolsets=toolsets, tools=[]))
        yield


@dataclass(eq=False)
class PydanticAISession:
    """Runs prompts with an agent, whose tools run `sub_agents`; `own` is what the caller gives `agent.run`,
    `histories` are the messages of earlier runs.
    """

    _agent: Agent[Any, Any]
    _own: Mapping[str, Any]
    _histories: Histories[ModelMessage]
    _sub_agents: Sequence[Agent[Any, Any]]
    _narrows: bool
    _streams: bool

    async def play(self, gate: LoopGate) -> None:
        """Run the agent, then report how that ended."""
        launch, meter = gate.launch, Meter(gate, self._used_before)
        try:
            with gated(self._sub_agents, meter):
                result = await self._agent.run(launch.prompt or None, **self._options(meter))
        except UsageLimitExceeded:
            await gate.turn_refused(launch.options.options.get("request_limit"))
            raise
        finally:
            gate.calls.end()
        await meter.settle(result.usage)
        kept = len(self._own.get("message_history") or ())
        self._histories.keep(launch.session_id, launch.run_id, result.all_messages()[kept:])
        gate.output = result.output
        await gate.complete()

    @property
    def _used_before(self) -> RunUsage:
        """What the caller counts in one with this run."""
        return self._own.get("usage") or RunUsage()

    def _options(self, meter: Meter) -> dict[str, Any]:
        launch = meter.gate.launch
        history = self._histories.find(launch.session_id, launch.transcript)
        if history is None:
            history = messages_of(launch.transcript)
        earlier = [*(self._own.get("message_history") or ()), *history]
        options = {**self._own, "message_history": earlier or None}
        options["usage_limits"] = tightened(self._own.get("usage_limits"), launch.options.options, self._used_before)
        options["capabilities"] = [
            *(self._own.get("capabilities") or ()),
            GateCapability(meter, narrows=self._narrows),
        ]
        if self._streams:
            options["event_stream_handler"] = _Streamed(meter.gate, self._own.get("event_stream_handler"))
        return options


class _Streamed:
    """Reports text as it is written, and passes everything on to the caller's own handler."""

    def __init__(self, gate: LoopGate, own: Any) -> None:
        self._gate = gate
        self._own = own

    async def __call__(self, ctx: RunContext[Any], events: AsyncIterable[Any]) -> None:
        seen = self._deltas(events)
        if self._own is not None:
            await self._own(ctx, seen)
        async for _ in seen:
            pass

    async def _deltas(self, events: AsyncIterable[Any]) -> AsyncIterable[Any]:
        async for event in events:
            text = ""
            if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                text = event.part.content
            elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                text = event.delta.content_delta
            if text:
                await self._gate.report(MessageStreamed(delta=text))
            yield event


_FIELDS = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_tokens": "cache_read_tokens",
    "cache_write_tokens": "cache_write_tokens",
    "output_reasoning_tokens": "reasoning_tokens",
}


class Meter:
    """Reports each turn's usage to the gate of one run, and then the rest of the run's own total.

    The total also has rejected attempts, the subagents that share the run's usage, and what it had `before` the run.
    """

    def __init__(self, gate: LoopGate, before: RunUsage) -> None:
        self.gate = gate
        self._reported = _numbers(before)
        self._model: str | None = None

    def of_response(self, response: ModelResponse) -> TokenUsageUpdated:
        """The usage of one response, with its cost in USD if the framework knows the price."""
        self._model = response.model_name
        return self._event(_numbers(response.usage), cost_usd=_cost(response))

    async def settle(self, total: RunUsage) -> None:
        """Report the rest of the run's usage, which no turn reported."""
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


def events_of(response: ModelResponse, gate: LoopGate) -> Iterator[Event]:
    """The messages of a turn, and the calls that the model provider ran itself, which cannot be held."""
    blocks = list(_blocks(response))
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    if blocks:
        yield MessageReceived(content="\n".join(texts) if len(texts) == len(blocks) else blocks)
    calls: dict[str, ClientCall] = {}
    for part in response.parts:
        if isinstance(part, NativeToolCallPart):
            name, given = _native_call(part)
            calls[part.tool_call_id] = call = gate.calls.unasked(part.tool_call_id, name, given, gate.turn_number)
            yield call.started()
        elif isinstance(part, NativeToolReturnPart):
            ended = calls.get(part.tool_call_id) or gate.calls.unasked(part.tool_call_id, part.tool_name)
            yield ended.ended(to_jsonable(part.content), failed=part.outcome != "success")


def _native_call(part: NativeToolCallPart) -> tuple[str, dict[str, Any]]:
    """The tool's name and its input; those of an MCP server are inside of the input that the framework states."""
    given: dict[str, Any] = to_jsonable(part.args_as_dict())
    kind, _, server = part.tool_name.partition(":")
    if kind != "mcp_server" or given.get("action") != "call_tool":
        return part.tool_name, given
    return mcp_tool_name(server, str(given.get("tool_name"))), tool_input(given.get("tool_args"))


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
        """Innermost, so that the evaluated input is what runs."""
        return CapabilityOrdering(position="innermost")

    async def before_model_request(self, ctx: RunContext[Any], request_context: Any) -> Any:
        """Begin a turn."""
        await self.meter.settle(ctx.usage)
        await self.meter.gate.turn()
        return self._narrowed(request_context) if self.narrows else request_context

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: Any, response: ModelResponse
    ) -> ModelResponse:
        """Report a turn's usage before its calls are proposed."""
        gate = self.meter.gate
        if response.usage.has_values():
            await gate.report(self.meter.of_response(response))
        for event in events_of(response, gate):
            await gate.report(event)
        return response

    def _narrowed(self, request: ModelRequestContext) -> ModelRequestContext:
        """The request without the tools that could not be called now.

        The agent keeps them, so that a call of one is proposed to the gate like any other.
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
        """Ask the gate, after everything that may change the input; a denied call's result is the gate's text."""
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
