"""Command lines as runs: the prompt is the line; all of its parts are evaluated before any of it runs."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec

from proctor.policies import events as ev
from proctor.policies.errors import UnjudgeableLineError, os_words
from proctor.policies.events.calls import ToolCall, same_input
from proctor.policies.events.run_context import Capabilities
from proctor.policies.policy import Allow, Policy, members_of
from proctor.policies.shell.parser import parse_line
from proctor.policies.shell.programs import LinePart
from proctor.policies.shell.words import DYNAMIC
from proctor.supervisor.errors import UsageError
from proctor.supervisor.ports.adapter import Gate, GateAnswer, Launch, LaunchOptions, Provider

from ..kit.call_book import outcome_of
from ..kit.client_process import Workspace
from ..kit.client_tools import PROGRAMS
from ..kit.gate import EventStream
from ..kit.launch_options import options_for
from ..kit.process_tree import end_orphans
from ..kit.provider import TaskProvider, at_work
from ..kit.subprocesses import Subprocesses

LINE_ID = "line"
_INJECTED = re.compile(r"BASH_FUNC_.*|BASH_ENV|ENV|SHELLOPTS|BASHOPTS|PS4|PROMPT_COMMAND")
"""Environment variables that can give an evaluated name another meaning."""


@dataclass(eq=False)
class ShellAgent:
    """Runs one command line.

    `admits_dynamic`: commands that are known only when they run are proposed to the gate. `named` are the programs
    that allow lists name, whose words need not be known.

    # INVARIANT: the line runs after the gate has allowed the line and every part of it, and unchanged.
    """

    _line: str
    _stream: EventStream
    _commands: Subprocesses
    _gate: Gate
    _admits_dynamic: bool
    _named: Collection[str]
    _allowed: list[ToolCall] = field(default_factory=list)

    async def run(self, workspace: Workspace, *, timeout_s: float | None) -> None:
        try:
            calls = self._calls(parse_line(self._line))
        except UnjudgeableLineError as error:
            await self._fail(error.code, str(error))
            return
        await self._stream.send_and_wait(ev.TurnStarted(turn=1))
        try:
            refusal = await self._propose(calls)
            if refusal is None:
                await self._execute(calls, workspace, timeout_s)
        finally:
            with anyio.CancelScope(shield=True):
                await self._release()
        if refusal is not None and not refusal.stop:
            await self._stream.send_and_wait(ev.TurnCompleted(turn=1))
            await self._fail("refused", refusal.tell_model or "the command line was refused")

    def _calls(self, parts: list[LinePart]) -> list[ToolCall]:
        """The line as a call of `bash`, then its parts in the order of the text."""
        parts = [part for part in parts if part.direction != "read" and not self._is_admitted(part)]
        unresolved = [part.command for part in parts if part.name == DYNAMIC]
        if unresolved and not self._admits_dynamic:
            raise UnjudgeableLineError(
                f"what `{unresolved[0][:200]}` runs is known only when it runs; write the command out,"
                f" or list `{DYNAMIC}` in an allow list"
            )
        whole = {"command": self._line, "argv": ["bash", "-c", self._line], "line": self._line}
        calls = [ToolCall(id=LINE_ID, name="bash", input=whole, turn=1)]
        for n, part in enumerate(parts, start=1):
            tool_input = {"command": part.command, "argv": list(part.argv), "exact": part.exact, "line": self._line}
            calls.append(ToolCall(id=f"{LINE_ID}.{n}", name=part.name, input=tool_input, turn=1))
        return calls

    def _is_admitted(self, part: LinePart) -> bool:
        """Whether it is a dynamic command of an unknown program that an allow list names."""
        is_strangers = part.among_words or (part.stranger and part.name == DYNAMIC)
        return is_strangers and part.argv[0].rpartition("/")[2] in self._named

    async def _propose(self, calls: list[ToolCall]) -> GateAnswer | None:
        """Propose one call after the other, up to the first denied one, so that no person is asked in vain."""
        for call in calls:
            answer = await self._gate(call)
            if not answer.allowed:
                return answer
            self._allowed.append(call)
            if answer.input is not None and not same_input(answer.input, call.input):
                return GateAnswer(allowed=False, tell_model="a command line cannot be rewritten")
        return None

    async def _execute(self, calls: list[ToolCall], workspace: Workspace, timeout_s: float | None) -> None:
        argv = ["bash", "--noprofile", "--norc", "-c", self._line]
        env = {name: value for name, value in workspace.environment.items() if not _INJECTED.fullmatch(name)}
        try:
            result = await self._commands.run(argv, cwd=workspace.folder, env=env, timeout_s=timeout_s)
        except OSError as error:
            raise RuntimeError(f"bash cannot be started: {os_words(error)}") from error
        output: dict[str, Any] = msgspec.to_builtins(result)
        failed = result.exit_code != 0 or result.timed_out
        for call in self._known_outcomes(calls):
            await self._stream.send_and_wait(outcome_of(call, output, failed=failed))
        self._allowed.clear()
        await self._stream.send_and_wait(ev.TurnCompleted(turn=1))
        await self._stream.send_and_wait(ev.RunCompleted(output=output))

    def _known_outcomes(self, calls: list[ToolCall]) -> list[ToolCall]:
        """The line, and its part if it has just one: of several, any may have run."""
        return calls if len(calls) == 2 else calls[:1]

    async def _release(self) -> None:
        """Report calls that were allowed but did not run to their end as failed."""
        for call in self._allowed:
            await self._stream.send_and_wait(outcome_of(call, "the line did not run to its end", failed=True))
        self._allowed.clear()

    async def _fail(self, code: str, message: str) -> None:
        await self._stream.send_and_wait(ev.RunFailed(error={"code": code, "message": message}))


class ShellAdapter:
    """Runs the prompt as a bash command line; see docs/agents/shell.md.

    Args:
        cwd: the directory it runs in; by default the current one.
        env: its environment; by default this process's.
        timeout_s: the most seconds it may take; by default as long as the policies allow.

    Raises:
        UsageError: an argument is wrong.
    """

    name = "shell"
    end_orphans = staticmethod(end_orphans)

    def __init__(
        self, *, cwd: str | Path | None = None, env: Mapping[str, str] | None = None, timeout_s: float | None = None
    ) -> None:
        if timeout_s is not None and not timeout_s > 0:
            raise UsageError(f"`timeout_s` must be above 0, not {timeout_s}")
        self._workspace = Workspace(cwd, env)
        self._timeout_s = timeout_s

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of a command line."""
        return Capabilities(
            gate="all",
            deny_ends_turn=True,
            cancel_kills_children=True,
            compiles=(f"allow {DYNAMIC}",),
            mostly=PROGRAMS,
            **self._workspace.described(),
        )

    async def prepare(self) -> None:
        """Check that bash and the directory exist. Raises ProviderUnavailableError."""
        self._workspace.program("bash", "install bash")
        self._workspace.check_folder()

    def compile(self, policy: Policy) -> LaunchOptions:
        """Unresolvable commands are denied unless an allow list names `dynamic`."""
        named = sorted(_named(policy))
        admits = DYNAMIC in named
        return options_for(policy, {"dynamic": admits, "named": named}, (f"allow {DYNAMIC}",) if admits else ())

    @asynccontextmanager
    async def open(self, launch: Launch) -> AsyncIterator[Provider]:
        """Evaluate the line part by part, then run it; leaving ends every process it started."""
        commands = Subprocesses(launch.mark)
        provider = TaskProvider(launch, commands)
        admits = launch.options.options.get("dynamic") is True
        named = launch.options.options.get("named") or ()
        agent = ShellAgent(launch.prompt, provider.stream, commands, launch.gate, admits, named)
        run = partial(agent.run, self._workspace, timeout_s=self._timeout_s)
        async with at_work(provider, run):
            yield provider


def _named(policy: Policy) -> set[str]:
    """The names that allow lists of the stack contain; a wildcard is not a name."""
    rules = [rule for member in members_of(policy) for rule in member.tool_rules if isinstance(rule, Allow)]
    return {tool for rule in rules for tool in rule.tools if isinstance(tool, str)}
