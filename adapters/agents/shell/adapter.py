"""Command lines as runs: the prompt is the line, and all of its parts are judged before any of it runs."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from proctor.policies.commands.sink import DYNAMIC
from proctor.policies.policy import Allow, Policy, members_of
from proctor.policies.stream.calls import Capabilities
from proctor.supervisor.errors import ProviderUnavailableError, UsageError
from proctor.supervisor.ports.adapters import Launch, LaunchOptions, Provider

from ...kit.event_stream import EventStream
from ...kit.launch_options import options_for
from ...kit.processes.commands import Subprocesses
from ...kit.processes.environment import home_of
from ...kit.processes.remains import end_remains
from ...kit.task_provider import TaskProvider, at_work
from .agent import ShellAgent


class ShellAdapter:
    """Runs the prompt as a bash command line; docs/agents/shell.md describes what is judged.

    Args:
        cwd: the directory it runs in; by default the current one.
        env: its environment; by default this process's.
        timeout_s: the most seconds it may take; by default as long as the policies allow.

    Raises:
        UsageError: an argument makes no sense.
    """

    name = "shell"
    end_remains = staticmethod(end_remains)

    def __init__(
        self,
        *,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> None:
        if timeout_s is not None and not timeout_s > 0:
            raise UsageError(f"`timeout_s` must be above 0, not {timeout_s}")
        self._cwd = Path.cwd() if cwd is None else Path(cwd)
        self._env = None if env is None else dict(env)
        self._timeout_s = timeout_s

    @property
    def capabilities(self) -> Capabilities:
        """What a command line can be held to."""
        return Capabilities(
            gate="all",
            deny_ends_turn=True,
            cancel_kills_children=True,
            compiles=(f"allow {DYNAMIC}",),
            workspace=str(self._cwd.absolute()),
            home=home_of(os.environ if self._env is None else self._env),
            shell="bash",
        )

    async def prepare(self) -> None:
        """Check that bash and the directory exist. Raises ProviderUnavailableError."""
        if shutil.which("bash") is None:
            raise ProviderUnavailableError("`bash` is not installed, or not on PATH")
        if not self._cwd.is_dir():
            raise ProviderUnavailableError(f"`{self._cwd}` is not a directory; create it first")

    def compile(self, policy: Policy) -> LaunchOptions:
        """Commands that are known only when they run are refused unless an allow list names `dynamic`."""
        named = sorted(_named(policy))
        admits = DYNAMIC in named
        return options_for(policy, {"dynamic": admits, "named": named}, (f"allow {DYNAMIC}",) if admits else ())

    @asynccontextmanager
    async def open(self, launch: Launch) -> AsyncIterator[Provider]:
        """Judge the line part by part, then run it; leaving ends every process it started."""
        commands = Subprocesses(launch.mark)
        stream = EventStream()
        admits = launch.options.options.get("dynamic") is True
        named = launch.options.options.get("named") or ()
        agent = ShellAgent(launch.prompt, stream, commands, launch.gate, admits_dynamic=admits, named=named)
        run = partial(agent.run, cwd=self._cwd, env=self._env, timeout_s=self._timeout_s)
        async with at_work(TaskProvider(stream, launch, commands), run) as provider:
            yield provider


def _named(policy: Policy) -> set[str]:
    """What allow lists of the stack name itself; a wildcard names nothing."""
    rules = [rule for member in members_of(policy) for rule in member.tool_rules if isinstance(rule, Allow)]
    return {tool for rule in rules for tool in rule.tools if isinstance(tool, str)}
