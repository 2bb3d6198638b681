"""An agent that follows a script, with tools that really run: for demonstrations, examples and tests."""

from __future__ import annotations

import inspect
import os
import re
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, assert_never

import anyio
import anyio.to_thread
import msgspec

from proctor.policies import events as ev
from proctor.policies.events.calls import ToolCall, call_fields
from proctor.policies.events.run_context import Capabilities
from proctor.policies.values.foreign_code import named_error
from proctor.supervisor.errors import ProviderUnavailableError, UsageError
from proctor.supervisor.ports.adapter import Gate, GateAnswer, Launch, Provider
from proctor.supervisor.run.tasks import tool_error

from ...kit.call_book import Turns, outcome_of
from ...kit.gate import EventStream
from ...kit.launch_options import NoLaunchOptions
from ...kit.process_tree import end_orphans
from ...kit.provider import TaskProvider, at_work
from ...kit.subprocesses import Subprocesses
from ...kit.values import to_jsonable
from .script import (
    Call,
    Fail,
    Output,
    Parallel,
    Say,
    Script,
    ScriptSource,
    Silence,
    Step,
    Think,
    Tokens,
    UsageStep,
    User,
    read_script,
)

CallEnd: TypeAlias = Literal["completed", "failed", "denied"]


class ScriptedAgent:
    """One run of a script.

    Without a gate, calls run at once and are only reported.

    # INVARIANT: a call runs after its gate allowed it, with the input the gate answered with.
    """

    def __init__(self, script: Script, stream: EventStream, tools: Toolbox, gate: Gate | None) -> None:
        self._script = script
        self._stream = stream
        self._tools = tools
        self._gate = gate
        self._turns = Turns()
        self._calls = 0
        self._output: Any = None
        self._stopped = False
        self._failure: str | None = None

    async def play(self) -> None:
        """Run every step, then report the end of the run."""
        await self._play(self._script.steps)
        await self._report(self._turns.end())
        if self._failure is not None:
            await self._stream.send_and_wait(
                ev.RunFailed(error={"code": "scripted_failure", "message": self._failure})
            )
        elif not self._stopped:
            await self._stream.send_and_wait(ev.RunCompleted(output=self._output))

    async def _play(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if self._stopped or self._failure is not None:
                return
            await self._step(step)

    async def _step(self, step: Step) -> None:
        match step:
            case Say(say=text):
                self._output = text
                await self._speak(text, text, streamed=step.stream)
            case Think(think=text):
                await self._speak([{"type": "thinking", "thinking": text}], text, streamed=step.stream)
            case User(user=text):
                await self._report((*self._turns.end(), ev.MessageSent(content=text)))
            case Call():
                await self._respond((step,))
            case Parallel(parallel=calls):
                await self._respond(calls)
            case UsageStep(usage=tokens):
                await self._stream.send_and_wait(_usage(tokens, self._script.model))
            case Silence(silence=seconds):
                await (anyio.sleep_forever() if seconds == "forever" else anyio.sleep(seconds))
            case Fail(fail=message):
                self._failure = message
            case Output(output=output):
                self._output = output
            case _:
                assert_never(step)

    async def _speak(self, content: Any, text: str, *, streamed: bool) -> None:
        deltas = re.findall(r"\s*\S+\s*$|\s*\S+", text) if streamed else ()
        streamed_text = (ev.MessageStreamed(delta=delta) for delta in deltas)
        await self._report((*self._turns.begin(), *streamed_text, ev.MessageReceived(content=content)))

    async def _report(self, events: Iterable[ev.Event]) -> None:
        for event in events:
            await self._stream.send_and_wait(event)

    async def _respond(self, calls: Sequence[Call]) -> None:
        """Propose the calls of one turn in order; they are held and run in parallel."""
        await self._report(self._turns.begin())
        outcomes: list[CallEnd] = ["denied"] * len(calls)

        async def one(n: int, *, task_status: anyio.abc.TaskStatus[None]) -> None:
            outcomes[n] = await self._call(calls[n], task_status)

        async with anyio.create_task_group() as siblings:
            for n in range(len(calls)):
                await siblings.start(one, n)
        await self._report(self._turns.end())
        for call, outcome in zip(calls, outcomes, strict=True):
            await self._play(getattr(call, f"if_{outcome}"))

    async def _call(self, step: Call, task_status: anyio.abc.TaskStatus[None]) -> CallEnd:
        self._calls += 1
        turn = self._turns.number
        call = ToolCall(id=step.id or f"call-{self._calls}", name=step.call, input=step.input, turn=turn)
        task_status.started()  # the next sibling is asked for once this one has reached the gate
        answer = await self._propose(call)
        if not answer.allowed:
            self._stopped = self._stopped or answer.stop
            return "denied"
        return await self._run(call, call.input if answer.input is None else answer.input)

    async def _propose(self, call: ToolCall) -> GateAnswer:
        if self._gate is not None:
            return await self._gate(call)
        await self._stream.send_and_wait(ev.ToolCallStarted(**call_fields(call)))
        return GateAnswer(allowed=True)

    async def _run(self, call: ToolCall, input: dict[str, Any]) -> CallEnd:
        outcome = outcome_of(call, "ended before it was done", failed=True)
        try:
            outcome = outcome_of(call, to_jsonable(await self._tools.run(call.name, input)), failed=False)
        except ToolFailedError as error:
            outcome = outcome_of(call, to_jsonable(error.error), failed=True)
        finally:
            # a call that ran has an outcome, also when the run is being ended around it
            with anyio.CancelScope(shield=True):
                await self._stream.send_and_wait(outcome)
        return "completed" if isinstance(outcome, ev.ToolCallCompleted) else "failed"


def _usage(tokens: Tokens, model: str) -> ev.TokenUsageUpdated:
    fields = msgspec.structs.asdict(tokens)
    return ev.TokenUsageUpdated(**{**fields, "model": tokens.model or model})


class ScriptedAdapter(NoLaunchOptions):
    """Runs a script as an agent. The prompt is recorded and otherwise ignored.

    Args:
        script: a path, YAML text, a mapping or a Script; see docs/agents/scripted.md.
        tools: functions by name, called with the call's input as keyword arguments, sync or async.
        gated: ask the gate before every call; False runs calls at once and only reports them.
        workspace: directory for commands and files; if left out, each run gets a new one, which is removed after it.
        command_timeout_s: the most seconds a shell command may take.

    Raises:
        UsageError: the script or an argument is wrong; lists every problem.
    """

    name = "scripted"
    end_orphans = staticmethod(end_orphans)

    def __init__(
        self,
        script: ScriptSource,
        *,
        tools: Mapping[str, Tool] | None = None,
        gated: bool = True,
        workspace: str | Path | None = None,
        command_timeout_s: float = 60.0,
    ) -> None:
        if not command_timeout_s > 0:
            raise UsageError(f"`command_timeout_s` must be above 0, not {command_timeout_s}")
        self.script = read_script(script)
        self._tools = check_tools(tools or {})
        self._gated = gated
        self._workspace = None if workspace is None else Path(workspace)
        self._command_timeout_s = command_timeout_s

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of a script; its tools are the ones it lists."""
        offered = self.script.tools or tuple(dict.fromkeys((*BUILT_IN, *self._tools)))
        return Capabilities(
            gate="all" if self._gated else "none",
            rewrite=self._gated,
            usage="per_turn",
            reports_cost=True,
            cancel_kills_children=True,
            tools=offered,
            shell="bash",
            model=self.script.model,
        )

    async def prepare(self) -> None:
        """Check that the workspace exists. Raises ProviderUnavailableError."""
        if self._workspace is not None and not self._workspace.is_dir():
            place = self._workspace
            raise ProviderUnavailableError(f"workspace `{place}` is not a directory; create it first")

    @asynccontextmanager
    async def open(self, launch: Launch) -> AsyncIterator[Provider]:
        """Play the script; leaving ends it and every process it started."""
        with _directory(self._workspace) as workspace:
            for path, content in self.script.files.items():
                write_file(workspace / path, content)
            commands = Subprocesses(launch.mark)
            tools = Toolbox(workspace, commands, self._tools, timeout_s=self._command_timeout_s)
            provider = TaskProvider(launch, commands)
            agent = ScriptedAgent(self.script, provider.stream, tools, launch.gate if self._gated else None)
            async with at_work(provider, agent.play):
                yield provider


@contextmanager
def _directory(given: Path | None) -> Iterator[Path]:
    """The given directory, or a new one that is removed at the end."""
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="proctor-", ignore_cleanup_errors=True) as made:
        yield Path(made)


Tool: TypeAlias = Callable[..., Any]
"""A sync or async function that takes the call's input as keyword arguments and returns its output."""
BUILT_IN = ("bash", "read", "write")
READ_LIMIT = 256 * 1024
_KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ")


class ToolFailedError(Exception):
    """A tool ran and failed; `error` is the error that the call reports."""

    def __init__(self, error: Any) -> None:
        super().__init__(str(error))
        self.error = error


class Toolbox:
    """The tools that one run of a scripted agent can call: `functions`, and those built in.

    Commands run in `workspace` and files are confined to it; a command may take `timeout_s` seconds, unless its input
    says less.
    """

    def __init__(
        self, workspace: Path, commands: Subprocesses, functions: Mapping[str, Tool], *, timeout_s: float
    ) -> None:
        self._workspace = workspace.resolve()
        self._commands = commands
        self._timeout_s = timeout_s
        self._tools: dict[str, Tool] = {"bash": self._bash, "read": self._read, "write": self._write, **functions}

    async def run(self, name: str, input: dict[str, Any]) -> Any:
        """Run one tool and return its output. Raises ToolFailedError with the error to report."""
        tool = self._tools.get(name)
        if tool is None:
            raise ToolFailedError(f"no such tool: {name}")
        _check_input(tool, input)
        try:
            if inspect.iscoroutinefunction(tool):
                output = await tool(**input)
            else:
                output = await anyio.to_thread.run_sync(partial(tool, **input), abandon_on_cancel=True)
            return await output if isinstance(output, Awaitable) else output
        except ToolFailedError:
            raise
        except BaseException as raised:
            error = tool_error(raised)
            if not isinstance(error, Exception):
                raise
            raise ToolFailedError(named_error(error)) from raised

    async def _bash(self, command: str, timeout_s: float | None = None) -> dict[str, Any]:
        given = self._timeout_s if timeout_s is None else min(float(timeout_s), self._timeout_s)
        env = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        result = await self._commands.run(
            ["bash", "-c", command], cwd=self._workspace, env={**env, "HOME": str(self._workspace)}, timeout_s=given
        )
        output: dict[str, Any] = msgspec.to_builtins(result)
        if result.exit_code or result.timed_out:
            raise ToolFailedError(output)
        return output

    def _read(self, path: str) -> str:
        with self._confined(path).open("rb") as file:
            return file.read(READ_LIMIT).decode("utf-8", "replace")

    def _write(self, path: str, content: str) -> str:
        return write_file(self._confined(path), content)

    def _confined(self, path: str) -> Path:
        target = (self._workspace / path).resolve()
        if not target.is_relative_to(self._workspace):
            raise ToolFailedError(f"`{path}` is outside the workspace")
        return target


def _check_input(tool: Tool, input: dict[str, Any]) -> None:
    try:
        signature = inspect.signature(tool)
    except ValueError:
        return  # written in C, without a signature: it says itself what it does not take
    try:
        signature.bind(**input)
    except TypeError as error:
        raise ToolFailedError(f"bad input: {error}") from None


def write_file(target: Path, content: str) -> str:
    """Write a text file and its directories; returns what was written, in words."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(content, encoding="utf-8")
    return f"{len(content.encode())} bytes written"


def check_tools(tools: Mapping[str, Tool]) -> dict[str, Tool]:
    """The given tools as a dict. Raises UsageError for one that cannot be called."""
    if not isinstance(tools, Mapping):
        raise UsageError("`tools` are functions by name: `{name: function}`")
    for name, tool in tools.items():
        if not name or not callable(tool):
            raise UsageError(f"tool `{name}` is not a function")
    return dict(tools)
