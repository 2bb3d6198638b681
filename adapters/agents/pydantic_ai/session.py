"""One running agent of pydantic-ai."""

from __future__ import annotations

from collections.abc import AsyncIterable, Mapping, Sequence
from typing import Any

from pydantic_ai.agent import Agent
from pydantic_ai.exceptions import UsageLimitExceeded
from pydantic_ai.messages import ModelMessage, PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta
from pydantic_ai.tools import RunContext

from proctor.policies.stream.events import MessageStreamed

from ..loop import LoopGate
from ..loop.histories import Histories
from .history import messages_of
from .hooks import GateCapability
from .meter import Meter
from .options import tightened
from .sub_agents import gated


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
