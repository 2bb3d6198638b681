"""One running agent of pydantic-ai."""

from __future__ import annotations

from collections.abc import AsyncIterable, Mapping, Sequence
from typing import Any

from pydantic_ai.agent import Agent
from pydantic_ai.exceptions import UsageLimitExceeded
from pydantic_ai.messages import ModelMessage, ModelResponse, PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta
from pydantic_ai.tools import RunContext
from pydantic_ai.usage import RunUsage

from proctor.policies.stream.events import MessageStreamed
from proctor.supervisor.ports import Launch

from ..loop.framework_session import FrameworkSession
from ..loop.histories import Histories
from .history import messages_of
from .hooks import Supervision
from .meter import Meter
from .options import tightened
from .responses import events_of
from .sub_agents import gated


class PydanticAISession(FrameworkSession[ModelMessage]):
    """A Provider: one run of an agent.

    Args:
        agent: the agent.
        own: what the caller gives `agent.run`.
        launch: what to run.
        histories: the message histories of earlier runs.
        sub_agents: agents that its tools run.
        narrows: offer only the tools that could be called now.
        streams: ask the model for its text as it is written.
    """

    def __init__(
        self,
        agent: Agent[Any, Any],
        own: Mapping[str, Any],
        launch: Launch,
        histories: Histories[ModelMessage],
        *,
        sub_agents: Sequence[Agent[Any, Any]],
        narrows: bool,
        streams: bool,
    ) -> None:
        super().__init__(own, launch, histories)
        self._agent = agent
        self._sub_agents = sub_agents
        self._narrows = narrows
        self._streams = streams
        self._meter = Meter()

    async def play(self) -> None:
        """Run the agent, then report how that ended."""
        launch = self._launch
        history = self._histories.known(launch.session_id, launch.transcript)
        if history is None:
            history = messages_of(launch.transcript)
        earlier = [*(self._own.get("message_history") or ()), *history]
        options = {**self._own, "message_history": earlier or None}
        options["usage_limits"] = tightened(self._own.get("usage_limits"), launch.options.options)
        options["capabilities"] = [
            *(self._own.get("capabilities") or ()),
            Supervision(self, narrows=self._narrows),
        ]
        if self._streams:
            options["event_stream_handler"] = self._streamed
        try:
            with gated(self._sub_agents, self):
                result = await self._agent.run(launch.prompt or None, **options)
        except UsageLimitExceeded:
            await self._turn_refused(launch.options.options.get("request_limit"))
            raise
        finally:
            self.calls.end()
        await self.settle(result.usage)
        kept = len(self._own.get("message_history") or ())
        await self._finished(result.all_messages()[kept:], result.output)

    async def asked(self, call_id: str, name: str, args: dict[str, Any]) -> tuple[bool, Any]:
        """Whether a call may run: then with these arguments, else with this text for the model."""
        call = self.calls.proposed(call_id, name, args, self._turn)
        answer = await self.ask(call)
        if not answer.allowed:
            return False, answer.tell_model
        self.calls.allowed(call)
        if answer.input is None:
            return True, args
        changed = {key: value for key, value in answer.input.items() if call.input.get(key) != value}
        kept = {key: value for key, value in args.items() if key in answer.input}
        return True, {**kept, **changed}

    def narrow(self, tools: list[str]) -> list[str]:
        """Those of the tools that could be called now."""
        return self._launch.narrow(tools)

    async def responded(self, response: ModelResponse) -> None:
        """A response has come."""
        if response.usage.has_values():
            await self._stream.emit(self._meter.of_response(response))
        for event in events_of(response, self._turn):
            await self._stream.emit(event)

    async def settle(self, total: RunUsage) -> None:
        """Report what the run used that no response told."""
        more = self._meter.beyond(total)
        if more is not None:
            await self._stream.emit(more)

    async def _streamed(self, ctx: RunContext[Any], events: AsyncIterable[Any]) -> None:
        handler = self._own.get("event_stream_handler")
        seen = self._deltas(events)
        if handler is not None:
            await handler(ctx, seen)
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
                await self._stream.emit(MessageStreamed(delta=text))
            yield event
