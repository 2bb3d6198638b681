"""A run of an agent of the OpenAI Agents SDK."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import anyio
import msgspec
from agents import Agent, FunctionTool, MaxTurnsExceeded, Model, RunConfig, Runner
from agents.models import get_default_model
from agents.models.interface import ModelProvider
from agents.run import AgentRunner, get_default_agent_runner, set_default_agent_runner

from proctor.policies.events import Event, MessageStreamed
from proctor.supervisor.errors import ProviderError

from ...kit.transcript import TranscriptMessage, conversation
from ..loop.gate import LoopGate, is_forced
from .gated_agents import GatedAgents
from .hooks import Reporting, TellingFormatter, ToolGuard

if TYPE_CHECKING:
    from proctor.supervisor.ports.adapter import Launch

    from ..loop.adapter import Histories


class SupervisedRun:
    """Hooks and settings of the SDK's runs inside one supervised run; `model_of` names an agent's model, if known."""

    def __init__(self, gate: LoopGate, model_of: Callable[[Agent[Any]], str | None], *, narrows: bool) -> None:
        self._gate = gate
        self._model_of = model_of
        self._guard = ToolGuard(gate)
        self._narrowing = Narrowing(gate) if narrows else None
        narrowed = self._narrowing.model if self._narrowing else None
        self._gated_agents = GatedAgents(self._guard, narrowed)

    def taken_over(self, agent: Agent[Any], options: dict[str, Any]) -> Agent[Any]:
        """The gated copy of an agent; `options` are changed so that its run is reported here."""
        self._gate.check_thread()
        if not isinstance(options.get("hooks"), Reporting):
            options["hooks"] = Reporting(self._gate, self._guard, self._model_of, options.get("hooks"))
        options["run_config"] = self._config(options.get("run_config"))
        return self._gated_agents.of(agent)

    def _config(self, given: Any) -> RunConfig:
        """A run's configuration, without tracing, and reporting failed calls."""
        config = RunConfig(**given) if isinstance(given, dict) else given or RunConfig()
        if isinstance(config.tool_error_formatter, TellingFormatter):
            return config
        formatter = TellingFormatter(self._guard, config.tool_error_formatter)
        config = replace(config, tracing_disabled=True, tool_error_formatter=formatter)
        if self._narrowing is None:
            return config
        model, provider = self._narrowing.model(config.model), self._narrowing.provider(config.model_provider)
        return replace(config, model=model, model_provider=provider)


supervised: ContextVar[SupervisedRun | None] = ContextVar("proctor_supervised_run", default=None)
"""The run whose tools run this code."""


class SupervisedRunner:
    """Starts runs with gated copies of their agents, reported to the run they are part of."""

    def __init__(self, runner: AgentRunner) -> None:
        self._runner = runner

    async def run(self, starting_agent: Any, input: Any, **options: Any) -> Any:
        return await self._runner.run(_taken_over(starting_agent, options), input, **options)

    def run_sync(self, starting_agent: Any, input: Any, **options: Any) -> Any:
        return self._runner.run_sync(_taken_over(starting_agent, options), input, **options)

    def run_streamed(self, starting_agent: Any, input: Any, **options: Any) -> Any:
        return self._runner.run_streamed(_taken_over(starting_agent, options), input, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)


def install() -> None:
    """Install the runner; later calls do nothing."""
    runner = get_default_agent_runner()
    if not isinstance(runner, SupervisedRunner):
        set_default_agent_runner(cast(AgentRunner, SupervisedRunner(runner)))


def _taken_over(agent: Any, options: dict[str, Any]) -> Any:
    run = supervised.get()
    return agent if run is None else run.taken_over(agent, options)


def items_of(transcript: Iterable[Event]) -> list[dict[str, Any]]:
    """The conversation in those events as the SDK's input items."""
    items: list[dict[str, Any]] = []
    for part in conversation(transcript):
        if isinstance(part, TranscriptMessage):
            items.append({"role": part.role, "content": part.text})
            continue
        items += [{"role": "assistant", "content": text} for text in part.texts]
        for call in part.calls:
            arguments = msgspec.json.encode(call.input).decode()
            items.append({"type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments})
        items += [
            {"type": "function_call_output", "call_id": call.id, "output": call.result or ""} for call in part.calls
        ]
    return items


DEFAULT_TURNS = 10
"""The SDK's own `max_turns`, if the caller gives none."""
KEEPS_HISTORY = ("session", "conversation_id", "previous_response_id")
"""Options with which the SDK or the model provider keeps the conversation."""
ENDING_S = 2.0


@dataclass(eq=False)
class OpenAIAgentsSession:
    """Runs prompts with copies of an agent; `own` is what the caller gives `Runner.run`, `histories` are the input
    items of earlier runs.
    """

    _agent: Agent[Any]
    _own: Mapping[str, Any]
    _histories: Histories[Any]
    _narrows: bool
    _streams: bool

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


class Narrowing:
    """Wraps models and model providers, so that only the tools that could be called now are offered.

    The SDK's agents keep every tool, so that a call of one that was not offered is proposed to the gate like any
    other. If the agent itself lacks the tool, the SDK ends the run and the call is not evaluated.
    """

    def __init__(self, gate: LoopGate) -> None:
        self._gate = gate

    def model(self, own: Any) -> Any:
        """The wrapped model; a model's name stays as it is."""
        if not isinstance(own, Model):
            return own

        def narrowed(respond_with: Callable[..., Any]) -> Callable[..., Any]:
            def respond(
                _: Any, system_instructions: Any, input: Any, model_settings: Any, tools: Any, *rest: Any, **more: Any
            ) -> Any:
                shown = self._shown(tools, model_settings)
                return respond_with(system_instructions, input, model_settings, shown, *rest, **more)

            return respond

        return _stand_in(own, get_response=narrowed(own.get_response), stream_response=narrowed(own.stream_response))

    def provider(self, own: ModelProvider) -> Any:
        """The provider of wrapped models."""
        return _stand_in(own, get_model=lambda _, name: self.model(own.get_model(name)))

    def _shown(self, tools: Sequence[Any], settings: Any) -> list[Any]:
        if is_forced(settings.tool_choice):
            return list(tools)
        callable_now = set(self._gate.narrow([tool.name for tool in tools if isinstance(tool, FunctionTool)]))
        return [tool for tool in tools if not isinstance(tool, FunctionTool) or tool.name in callable_now]


def _stand_in(own: Any, **methods: Callable[..., Any]) -> Any:
    """An object of a class like that of `own`, with its attributes and other methods."""
    kind = type(own)
    made: Any = object.__new__(type(kind.__name__, (kind,), methods))
    made.__dict__ = own.__dict__
    return made
