"""The SDK's runner, for runs inside a supervised one: agents used as tools start runs of their own.

The SDK has one runner per process, and this one wraps it: outside a supervised run it changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, cast

from agents import Agent, RunConfig
from agents.run import AgentRunner, get_default_agent_runner, set_default_agent_runner

from ..loop import LoopGate
from .gated_agents import GatedAgents
from .guard import ToolGuard
from .narrowing import Narrowing
from .reporting import Reporting, TellingFormatter


class SupervisedRun:
    """What every run of the SDK inside one supervised run is given.

    Args:
        gate: the supervised run.
        model_of: names the model of an agent, if known.
        narrows: offer only the tools that could be called now.
    """

    def __init__(self, gate: LoopGate, model_of: Callable[[Agent[Any]], str | None], *, narrows: bool) -> None:
        self._gate = gate
        self._model_of = model_of
        self._guard = ToolGuard(gate)
        self._narrowing = Narrowing(gate) if narrows else None
        narrowed = self._narrowing.model if self._narrowing else None
        self._gated_agents = GatedAgents(self._guard.of, self._guard.hold, self._guard.failed, narrowed)

    def taken_over(self, agent: Agent[Any], options: dict[str, Any]) -> Agent[Any]:
        """The gated copy of an agent; `options` are changed so that its run is reported here."""
        self._gate.check_thread()
        if not isinstance(options.get("hooks"), Reporting):
            options["hooks"] = Reporting(self._gate, self._guard, self._model_of, options.get("hooks"))
        options["run_config"] = self._config(options.get("run_config"))
        return self._gated_agents.of(agent)

    def _config(self, given: Any) -> RunConfig:
        """A run's configuration: not traced, and telling of calls that fail."""
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
"""The run whose tools this code is run by."""


class SupervisedRunner:
    """Starts runs with gated copies of their agents, reported to the run they are part of."""

    def __init__(self, runner: AgentRunner) -> None:
        self._runner = runner

    async def run(self, starting_agent: Any, input: Any, **options: Any) -> Any:
        """See Runner.run."""
        return await self._runner.run(_taken_over(starting_agent, options), input, **options)

    def run_sync(self, starting_agent: Any, input: Any, **options: Any) -> Any:
        """See Runner.run_sync."""
        return self._runner.run_sync(_taken_over(starting_agent, options), input, **options)

    def run_streamed(self, starting_agent: Any, input: Any, **options: Any) -> Any:
        """See Runner.run_streamed."""
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
