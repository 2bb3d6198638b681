"""The SDK's runner, for runs inside a supervised one: agents used as tools start runs of their own.

The SDK has one runner a process, and this one stands in front of it: outside a supervised run it changes
nothing.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

from agents.run import AgentRunner, get_default_agent_runner, set_default_agent_runner

from .reporting import Reporting

if TYPE_CHECKING:
    from .session import OpenAIAgentsSession

supervised: ContextVar[OpenAIAgentsSession | None] = ContextVar("proctor_supervised_run", default=None)
"""The session whose tools this code is run by."""


class SupervisedRunner:
    """Starts runs with gated copies of their agents, reported to the session they are part of."""

    def __init__(self, runner: AgentRunner) -> None:
        self._runner = runner

    async def run(self, starting_agent: Any, input: Any, **options: Any) -> Any:
        """See Runner.run."""
        return await self._runner.run(*_taken_over(starting_agent, input, options), **options)

    def run_sync(self, starting_agent: Any, input: Any, **options: Any) -> Any:
        """See Runner.run_sync."""
        return self._runner.run_sync(*_taken_over(starting_agent, input, options), **options)

    def run_streamed(self, starting_agent: Any, input: Any, **options: Any) -> Any:
        """See Runner.run_streamed."""
        return self._runner.run_streamed(*_taken_over(starting_agent, input, options), **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)


def install() -> None:
    """Put the runner in its place; once is enough."""
    runner = get_default_agent_runner()
    if not isinstance(runner, SupervisedRunner):
        set_default_agent_runner(cast(AgentRunner, SupervisedRunner(runner)))


def _taken_over(agent: Any, input: Any, options: dict[str, Any]) -> tuple[Any, Any]:
    session = supervised.get()
    if session is None:
        return agent, input
    session.check_thread()
    if not isinstance(options.get("hooks"), Reporting):
        options["hooks"] = Reporting(session, options.get("hooks"))
    options["run_config"] = session.run_config(options.get("run_config"))
    return session.copies.of(agent), input
