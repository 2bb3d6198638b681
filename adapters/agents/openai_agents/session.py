"""One running agent of the OpenAI Agents SDK."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import anyio
import msgspec
from agents import (
    Agent,
    MaxTurnsExceeded,
    ModelResponse,
    RunConfig,
    Runner,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolInputGuardrailData,
)
from agents.models import get_default_model

from proctor.policies.stream.calls import tell_model_default
from proctor.policies.stream.events import MessageStreamed
from proctor.supervisor.errors import ProviderError
from proctor.supervisor.ports import Launch

from ..loop.framework_session import FrameworkSession
from ..loop.histories import Histories
from .gated_agents import Copies
from .history import items_of
from .reporting import TellingFormatter
from .responses import events_of, usage_of
from .runs import install, supervised

DEFAULT_TURNS = 10
"""The SDK's own `max_turns`, where the caller gives none."""
KEEPS_HISTORY = ("session", "conversation_id", "previous_response_id")
"""Options of a run with which the SDK or the model's provider keeps the conversation."""
ENDING_S = 2.0


class OpenAIAgentsSession(FrameworkSession[Any]):
    """A Provider: one run of an agent.

    Args:
        agent: the agent; copies of it run.
        own: what the caller gives `Runner.run`.
        launch: what to run.
        histories: the input items of earlier runs.
        narrows: offer only the tools that could be called now.
        streams: ask the model for its text as it is written.
    """

    def __init__(
        self,
        agent: Agent[Any],
        own: Mapping[str, Any],
        launch: Launch,
        histories: Histories[Any],
        *,
        narrows: bool,
        streams: bool,
    ) -> None:
        super().__init__(own, launch, histories)
        self._agent = agent
        self._streams = streams
        guard: ToolInputGuardrail[Any] = ToolInputGuardrail(guardrail_function=self._asked, name="proctor")
        self.copies = Copies(guard, self.call_failed, self._offered if narrows else None)

    async def play(self) -> None:
        """Run the agent, then report how that ended."""
        install()
        supervised.set(self)
        options = {**self._own, "max_turns": self._max_turns()}
        try:
            result = await (self._streamed(options) if self._streams else self._run(options))
        except MaxTurnsExceeded:
            await self._turn_refused(self._launch.options.options.get("max_turns"))
            raise
        finally:
            self.calls.end()
        if result.interruptions:
            names = ", ".join(f"`{item.tool_name}`" for item in result.interruptions)
            raise ProviderError(f"{names} waits for an approval of the SDK's own; use `request_approval` instead")
        await self._finished(result.to_input_list(), result.final_output)

    async def responded(self, agent: Agent[Any], response: ModelResponse) -> None:
        """A response has come."""
        usage = usage_of(response, self._model_of(agent))
        if usage is not None:
            await self._stream.emit(usage)
        for event in events_of(response, turn=self._turn, parent=self.calls.parent()):
            await self._stream.emit(event)

    async def done(self, result: object) -> None:
        """The call this code is run by is done."""
        call_id = self.calls.parent()
        if call_id is not None:
            await self.calls.completed(call_id, result)

    def call_failed(self, error: Exception) -> None:
        """The tool of the call this code is run by raised, which the SDK turns into a result."""
        call_id = self.calls.parent()
        if call_id is not None:
            self.calls.failed(call_id, error)

    def run_config(self, given: Any) -> RunConfig:
        """A run's configuration: not traced, and telling of calls that fail."""
        config = RunConfig(**given) if isinstance(given, dict) else given or RunConfig()
        if isinstance(config.tool_error_formatter, TellingFormatter):
            return config
        formatter = TellingFormatter(self, config.tool_error_formatter)
        return replace(config, tracing_disabled=True, tool_error_formatter=formatter)

    async def _asked(self, data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        """Ask the gate; a refused call gives the model the gate's text."""
        context = data.context
        inside, call_id = self.calls.parent(), context.tool_call_id
        if inside and inside.rpartition(".")[2] != call_id:
            call_id = f"{inside}.{call_id}"
        call = self.calls.proposed(call_id, context.tool_name, _arguments(context.tool_arguments), self._turn)
        answer = await self.ask(call)
        if not answer.allowed or (answer.input is not None and answer.input != call.input):
            return ToolGuardrailFunctionOutput.reject_content(answer.tell_model or tell_model_default(call.name))
        self.calls.allowed(call)
        self.calls.enter(call_id)  # the SDK runs the tool in a task that this one starts
        return ToolGuardrailFunctionOutput.allow()

    def _offered(self, name: str) -> bool:
        return bool(self._launch.narrow([name]))

    def _max_turns(self) -> int | None:
        own: int | None
        cap: int | None
        own, cap = self._own.get("max_turns", DEFAULT_TURNS), self._launch.options.options.get("max_turns")
        return own if cap is None else cap if own is None else min(own, cap)

    def _input(self) -> Any:
        """The prompt, after what was said before; the SDK's own sessions keep that themselves."""
        launch = self._launch
        if not launch.transcript or any(self._own.get(kept) for kept in KEEPS_HISTORY):
            return launch.prompt
        known = self._histories.known(launch.session_id, launch.transcript)
        earlier = items_of(launch.transcript) if known is None else known
        return [*earlier, {"role": "user", "content": launch.prompt}]

    def _model_of(self, agent: Agent[Any]) -> str | None:
        config = self._own.get("run_config")
        model = getattr(config, "model", None) or agent.model or get_default_model()
        name = model if isinstance(model, str) else getattr(model, "model", None)
        return name if isinstance(name, str) else None

    async def _run(self, options: dict[str, Any]) -> Any:
        return await Runner.run(self._agent, self._input(), **options)

    async def _streamed(self, options: dict[str, Any]) -> Any:
        result = Runner.run_streamed(self._agent, self._input(), **options)
        try:
            async for event in result.stream_events():
                data: Any = getattr(event, "data", None)
                if getattr(data, "type", "") == "response.output_text.delta":
                    await self._stream.emit(MessageStreamed(delta=data.delta))
        finally:
            if not result.is_complete:
                result.cancel()
            await _ended(result.run_loop_task)
        return result


def _arguments(text: str) -> Any:
    """A call's arguments as an object; what is none is judged as the text it is."""
    try:
        return msgspec.json.decode(text or "{}")
    except msgspec.DecodeError:
        return text


async def _ended(task: Any) -> None:
    """Wait, for a bounded time, until the SDK's own task has ended."""
    if task is not None and not task.done():
        with anyio.CancelScope(shield=True):
            await asyncio.wait([task], timeout=ENDING_S)
