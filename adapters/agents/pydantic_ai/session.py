"""A run of an agent of pydantic-ai: its history, its tools and its sub-agents gated, and how it is played."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic_ai.exceptions import UsageLimitExceeded
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    SystemPromptPart,
    TextPart,
    TextPartDelta,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.toolsets import WrapperToolset

from proctor.policies.events import MessageStreamed

from ...kit.transcript import Said, conversation
from ..loop import ToolRefused
from ..loop.gate import with_objects
from .hooks import GateCapability, Meter

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Iterator, Mapping, Sequence

    from pydantic_ai.agent import Agent
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.tools import RunContext
    from pydantic_ai.toolsets import ToolsetTool

    from proctor.policies.events import Event

    from ...kit.transcript import Response
    from ..loop import LoopGate
    from ..loop.adapter import Histories


def tightened(own: Any, options: dict[str, Any]) -> Any:
    """The caller's UsageLimits, or the framework's default, with each compiled limit where it is lower."""
    from dataclasses import replace

    from pydantic_ai.usage import UsageLimits

    limits = own or UsageLimits()
    lower = {
        name: value
        for name, value in options.items()
        if getattr(limits, name) is None or value < getattr(limits, name)
    }
    return replace(limits, **lower)


def messages_of(transcript: Sequence[Event]) -> list[ModelMessage]:
    """The conversation in those events as the framework's messages."""
    messages: list[ModelMessage] = []
    for part in conversation(transcript):
        if isinstance(part, Said):
            prompt = SystemPromptPart(part.text) if part.role == "system" else UserPromptPart(part.text)
            messages.append(ModelRequest(parts=[prompt]))
        else:
            messages.extend(_exchange(part))
    return messages


def _exchange(response: Response) -> list[ModelMessage]:
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
        """Ask the gate; a refused call gives the sub-agent's model the gate's text."""
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
    """Within this context, and nowhere else, these agents' tools are gated."""
    with ExitStack() as stack:
        for agent in agents:
            toolsets = [GatedToolset(toolset, meter) for toolset in agent.toolsets]
            stack.enter_context(agent.override(toolsets=toolsets, tools=[]))
        yield


class PydanticAISession:
    """Runs prompts with an agent.

    Args:
        agent: the agent.
        own: what the caller gives `agent.run`.
        histories: the message histories of earlier runs.
        sub_agents: agents that its tools run.
        narrows: offer only the tools that could be called now.
        streams: ask the model for its text as it is written.
    """

    def __init__(
        self,
        agent: Agent[Any, Any],
        own: Mapping[str, Any],
        histories: Histories[ModelMessage],
        *,
        sub_agents: Sequence[Agent[Any, Any]],
        narrows: bool,
        streams: bool,
    ) -> None:
        self._agent = agent
        self._own = own
        self._histories = histories
        self._sub_agents = sub_agents
        self._narrows = narrows
        self._streams = streams

    async def play(self, gate: LoopGate) -> None:
        """Run the agent, then report how that ended."""
        launch, meter = gate.launch, Meter(gate)
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

    def _options(self, meter: Meter) -> dict[str, Any]:
        launch = meter.gate.launch
        history = self._histories.find(launch.session_id, launch.transcript)
        if history is None:
            history = messages_of(launch.transcript)
        earlier = [*(self._own.get("message_history") or ()), *history]
        options = {**self._own, "message_history": earlier or None}
        options["usage_limits"] = tightened(self._own.get("usage_limits"), launch.options.options)
        options["capabilities"] = [
            *(self._own.get("capabilities") or ()),
            GateCapability(meter, narrows=self._narrows),
        ]
        if self._streams:
            options["event_stream_handler"] = _Streamed(meter.gate, self._own.get("event_stream_handler"))
        return options


class _Streamed:
    """Reports text as it is written, and hands everything on to the caller's own handler."""

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
