"""One running agent of the OpenAI Agents SDK."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import anyio
from agents import Agent, MaxTurnsExceeded, Runner
from agents.models import get_default_model

from proctor.policies.stream.events import MessageStreamed
from proctor.supervisor.errors import ProviderError
from proctor.supervisor.ports.adapters import Launch

from ..loop import LoopGate
from ..loop.histories import Histories
from .history import items_of
from .runs import SupervisedRun, install, supervised

DEFAULT_TURNS = 10
"""The SDK's own `max_turns`, where the caller gives none."""
KEEPS_HISTORY = ("session", "conversation_id", "previous_response_id")
"""Options of a run with which the SDK or the model's provider keeps the conversation."""
ENDING_S = 2.0


class OpenAIAgentsSession:
    """Runs prompts with an agent.

    Args:
        agent: the agent; copies of it run.
        own: what the caller gives `Runner.run`.
        histories: the input items of earlier runs.
        narrows: offer only the tools that could be called now.
        streams: ask the model for its text as it is written.
    """

    def __init__(
        self, agent: Agent[Any], own: Mapping[str, Any], histories: Histories[Any], *, narrows: bool, streams: bool
    ) -> None:
        self._agent = agent
        self._own = own
        self._histories = histories
        self._narrows = narrows
        self._streams = streams

    async def play(self, gate: LoopGate) -> None:
        """Run the agent, then report how that ended."""
        install()
        supervised.set(SupervisedRun(gate, self._model_of, narrows=self._narrows))
        launch = gate.launch
        options = {**self._own, "max_turns": self._max_turns(launch)}
        try:
            result = await (self._streamed(gate, options) if self._streams else self._run(launch, options))
        except MaxTurnsExceeded:
            await gate.turn_refused(launch.options.options.get("max_turns"))
            raise
        finally:
            gate.calls.end()
        if result.interruptions:
            names = ", ".join(f"`{item.tool_name}`" for item in result.interruptions)
            raise ProviderError(f"{names} waits for an approval of the SDK's own; use `request_approval` instead")
        self._histories.keep(launch.session_id, launch.run_id, result.to_input_list())
        gate.output = result.final_output
        await gate.complete()

    def _max_turns(self, launch: Launch) -> int | None:
        own: int | None
        cap: int | None
        own, cap = self._own.get("max_turns", DEFAULT_TURNS), launch.options.options.get("max_turns")
        return own if cap is None else cap if own is None else min(own, cap)

    def _input(self, launch: Launch) -> Any:
        """The prompt, after what was said before; the SDK's own sessions keep that themselves."""
        if not launch.transcript or any(self._own.get(kept) for kept in KEEPS_HISTORY):
            return launch.prompt
        history = self._histories.find(launch.session_id, launch.transcript)
        earlier = items_of(launch.transcript) if history is None else history
        return [*earlier, {"role": "user", "content": launch.prompt}]

    def _model_of(self, agent: Agent[Any]) -> str | None:
        config = self._own.get("run_config")
        model = getattr(config, "model", None) or agent.model or get_default_model()
        name = model if isinstance(model, str) else getattr(model, "model", None)
        return name if isinstance(name, str) else None

    async def _run(self, launch: Launch, options: dict[str, Any]) -> Any:
        return await Runner.run(self._agent, self._input(launch), **options)

    async def _streamed(self, gate: LoopGate, options: dict[str, Any]) -> Any:
        result = Runner.run_streamed(self._agent, self._input(gate.launch), **options)
        try:
            async for event in result.stream_events():
                data: Any = getattr(event, "data", None)
                if getattr(data, "type", "") == "response.output_text.delta":
                    await gate.report(MessageStreamed(delta=data.delta))
        finally:
            if not result.is_complete:
                result.cancel()
            await _ended(result.run_loop_task)
        return result


async def _ended(task: Any) -> None:
    """Wait, for a bounded time, until the SDK's own task has ended."""
    if task is not None and not task.done():
        with anyio.CancelScope(shield=True):
            await asyncio.wait([task], timeout=ENDING_S)
