"""One command line as a run: all of it is judged, then all of it runs, or nothing does."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import anyio
import msgspec

from proctor.policies.commands.parse import parse_line
from proctor.policies.commands.sink import DYNAMIC, LinePart
from proctor.policies.errors import UnjudgeableLineError
from proctor.policies.stream.calls import ToolCall
from proctor.policies.stream.events import (
    RunCompleted,
    RunFailed,
    ToolCallCompleted,
    ToolCallFailed,
    TurnCompleted,
    TurnStarted,
)
from proctor.policies.stream.marks import same_input
from proctor.supervisor.ports.adapters import Gate, GateAnswer

from ...kit.event_stream import EventStream
from ...kit.processes.commands import CommandResult, Subprocesses

LINE_ID = "line"
_INJECTED = re.compile(r"BASH_FUNC_.*|BASH_ENV|ENV|SHELLOPTS|BASHOPTS|PS4|PROMPT_COMMAND")
"""Variables through which an environment gives a judged name another meaning."""


class ShellAgent:
    """Runs one command line.

    # INVARIANT: the line runs after the gate has allowed the line and every part of it, and unchanged.

    Args:
        line: the command line.
        stream: takes the events.
        commands: runs the line.
        gate: asked for the line and for each part.
        admits_dynamic: whether commands that are known only when they run are proposed to the gate.
        named: programs that allow lists name, whose words need not be known.
    """

    def __init__(
        self,
        line: str,
        stream: EventStream,
        commands: Subprocesses,
        gate: Gate,
        *,
        admits_dynamic: bool,
        named: Collection[str] = (),
    ) -> None:
        self._line = line
        self._stream = stream
        self._commands = commands
        self._gate = gate
        self._admits_dynamic = admits_dynamic
        self._named = named
        self._allowed: list[ToolCall] = []

    async def run(self, *, cwd: Path, env: Mapping[str, str] | None, timeout_s: float | None) -> None:
        """Judge, run and report."""
        try:
            calls = self._calls(parse_line(self._line))
        except UnjudgeableLineError as error:
            await self._fail(error.code, str(error))
            return
        await self._stream.emit(TurnStarted(turn=1))
        try:
            refusal = await self._ask(calls)
            if refusal is None:
                await self._execute(calls, cwd, _clean(env), timeout_s)
        finally:
            with anyio.CancelScope(shield=True):
                await self._give_back()
        if refusal is not None and not refusal.stop:
            await self._stream.emit(TurnCompleted(turn=1))
            await self._fail("refused", refusal.tell_model or "the command line was refused")

    def _calls(self, parts: list[LinePart]) -> list[ToolCall]:
        """The line as a call of `bash`, then its parts in the order of the text."""
        parts = [part for part in parts if part.direction != "read" and not self._is_admitted(part)]
        unseen = [part.command for part in parts if part.name == DYNAMIC]
        if unseen and not self._admits_dynamic:
            raise UnjudgeableLineError(
                f"what `{unseen[0][:200]}` runs is known only when it runs; write the command out,"
                f" or list `{DYNAMIC}` in an allow list"
            )
        whole = {"command": self._line, "argv": ["bash", "-c", self._line], "line": self._line}
        calls = [ToolCall(id=LINE_ID, name="bash", input=whole, turn=1)]
        for n, part in enumerate(parts, start=1):
            tool_input = {"command": part.command, "argv": list(part.argv), "exact": part.exact, "line": self._line}
            calls.append(ToolCall(id=f"{LINE_ID}.{n}", name=part.name, input=tool_input, turn=1))
        return calls

    def _is_admitted(self, part: LinePart) -> bool:
        """Whether it is what a program may run that nobody knows, and that an allow list names."""
        return part.among_words and part.argv[0].rpartition("/")[2] in self._named

    async def _ask(self, calls: list[ToolCall]) -> GateAnswer | None:
        """Propose one call after the other, up to the first that is refused, so that no person is asked in vain."""
        for call in calls:
            answer = await self._gate(call)
            if not answer.allowed:
                return answer
            self._allowed.append(call)
            if answer.input is not None and not same_input(answer.input, call.input):
                return GateAnswer(allowed=False, tell_model="a command line cannot be rewritten")
        return None

    async def _execute(
        self, calls: list[ToolCall], cwd: Path, env: Mapping[str, str], timeout_s: float | None
    ) -> None:
        argv = ["bash", "--noprofile", "--norc", "-c", self._line]
        try:
            result = await self._commands.run(argv, cwd=cwd, env=env, timeout_s=timeout_s)
        except OSError as error:
            raise RuntimeError(f"bash cannot be started: {error.strerror or error}") from error
        output: dict[str, Any] = msgspec.to_builtins(result)
        for call in self._known_outcomes(calls):
            await self._outcome(call, result, output)
        self._allowed.clear()
        await self._stream.emit(TurnCompleted(turn=1))
        await self._stream.emit(RunCompleted(output=output))

    def _known_outcomes(self, calls: list[ToolCall]) -> list[ToolCall]:
        """Report the line, and its part if there is only one: of several parts it is unknown which ran."""
        return calls if len(calls) == 2 else calls[:1]

    async def _outcome(self, call: ToolCall, result: CommandResult, output: dict[str, Any]) -> None:
        if result.exit_code == 0 and not result.timed_out:
            done = ToolCallCompleted(tool_call_id=call.id, tool_name=call.name, tool_output=output)
            await self._stream.emit(done)
        else:
            await self._stream.emit(ToolCallFailed(tool_call_id=call.id, tool_name=call.name, error=output))

    async def _give_back(self) -> None:
        """Report calls that were allowed but did not run to their end as failed."""
        for call in self._allowed:
            error = "the line did not run to its end"
            await self._stream.emit(ToolCallFailed(tool_call_id=call.id, tool_name=call.name, error=error))
        self._allowed.clear()

    async def _fail(self, code: str, message: str) -> None:
        await self._stream.emit(RunFailed(error={"code": code, "message": message}))


def _clean(env: Mapping[str, str] | None) -> dict[str, str]:
    given = os.environ if env is None else env
    return {name: value for name, value in given.items() if not _INJECTED.fullmatch(name)}
