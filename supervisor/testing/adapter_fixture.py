"""The fixture of the Adapter tests: the agents that an author provides, and helpers that inspect a run."""

import json
import os
import re
import unittest
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

import anyio
import msgspec
import psutil

from proctor.policies import events as ev
from proctor.policies.events.calls import ToolCall, tell_model_default
from proctor.policies.events.run_context import TOKENS, Capabilities, Usage

from ..errors import ProviderError
from ..ports.adapter import Adapter, GateAnswer, Launch, LaunchOptions, Provider
from .fakes import PATIENCE_S

Answering: TypeAlias = Callable[[ToolCall], Awaitable[GateAnswer]]
Watching: TypeAlias = Callable[[ev.Event], bool]


class Driven(msgspec.Struct, kw_only=True):
    """The course of a run: `log` has the calls proposed to the gate and the events, in one order."""

    log: list[ToolCall | ev.Event] = msgspec.field(default_factory=list)
    error: Exception | None = None
    evidence: dict[str, Any] = {}
    steps_taken: list[str] = msgspec.field(default_factory=list)

    @property
    def events(self) -> list[ev.Event]:
        return [item for item in self.log if isinstance(item, ev.Event)]

    @property
    def proposed(self) -> list[ToolCall]:
        """The calls proposed to the gate, in order."""
        return [item for item in self.log if isinstance(item, ToolCall)]

    @property
    def types(self) -> list[str]:
        return [event.type for event in self.events]

    def outcomes(self, call_id: str) -> list[ev.ToolOutcome]:
        return [e for e in self.events if isinstance(e, ev.ToolOutcome) and e.tool_call_id == call_id]


@dataclass(eq=False)
class Drive:
    """One run of an adapter, whose gate refuses the tools in `refuse`, or is `answer`; `stop`: a refusal also stops
    the agent. The cancel steps run once an event satisfies `cancel_when`. `resume` is the id of the agent's own
    session.
    """

    adapter: Adapter
    _: KW_ONLY
    refuse: Collection[str] = ()
    answer: Answering | None = None
    stop: bool = False
    cancel_when: Watching | None = None
    options: LaunchOptions | None = None
    resume: str | None = None
    narrow: Callable[[Sequence[str]], list[str]] = list
    done: Driven = field(default_factory=Driven, init=False)
    _ended: anyio.Event = field(default_factory=anyio.Event, init=False)
    _cancelled: anyio.Event = field(default_factory=anyio.Event, init=False)

    async def run(self, prompt: str = "go", *, run_id: str | None = None) -> Driven:
        """Start the adapter, read it to its end and return what happened, including an error of the client."""
        await self.adapter.prepare()
        launch = Launch(
            run_id=run_id or f"run-{uuid4().hex}",
            session_id="s-1",
            prompt=prompt,
            gate=self._gate,
            options=self.options or LaunchOptions(),
            resume=self.resume,
            narrow=self.narrow,
        )
        try:
            async with self.adapter.open(launch) as provider, anyio.create_task_group() as tasks:
                tasks.start_soon(self._walk, provider)
                try:
                    await self._read(provider)
                finally:
                    self._ended.set()
                    tasks.cancel_scope.cancel()
        except ProviderError as error:
            self.done.error = error
        return self.done

    def cancel(self) -> None:
        self._cancelled.set()

    async def _read(self, provider: Provider) -> None:
        try:
            async for event in provider.events():
                self.done.log.append(event)
                if self.cancel_when is not None and self.cancel_when(event):
                    self.cancel()
        except Exception as error:
            self.done.error = error

    async def _walk(self, provider: Provider) -> None:
        await self._cancelled.wait()
        for step in provider.cancel_steps():
            if self._ended.is_set():
                return
            self.done.steps_taken.append(step.name)
            with anyio.move_on_after(step.bound_s):
                self.done.evidence[step.name] = await step.act()
                await self._ended.wait()

    async def _gate(self, call: ToolCall) -> GateAnswer:
        self.done.log.append(call)
        if self.answer is not None:
            return await self.answer(call)
        if call.name in self.refuse:
            text = tell_model_default(call.name)
            return GateAnswer(allowed=False, tell_model=text, stop=self.stop)
        return GateAnswer(allowed=True)


class Evidence:
    """The base of a group of tests that show what an adapter can do.

    `row` names the row of a capability matrix that they are for. Once a test has run, `declared` is what the
    adapter declares and `shown` names the capabilities that the test has seen to be so; `compiles deny` is one
    part of `compiles`, and `sub_agents` says that what they do is held and counted as what their parent does.
    """

    row: str | None = None
    declared: Capabilities | None = None
    shown: frozenset[str] = frozenset()

    def saw(self, declared: Capabilities, **seen: object) -> None:
        """Record that an adapter was seen to do this; it must be exactly what it declares."""
        declarations = {name: getattr(declared, name) for name in seen}
        assert declarations == seen, f"declared {declarations}, seen {seen}"
        self._show(declared, *seen)

    def saw_sub_agents(self, declared: Capabilities) -> None:
        """Record that a subagent was seen to be bound by its parent's policy."""
        self._show(declared, "sub_agents")

    def saw_compiled(self, declared: Capabilities, part: str) -> None:
        """Record that a part of a policy was seen to hold as a launch option."""
        assert part in declared.compiles, f"`{part}` is not among the declared {declared.compiles}"
        self._show(declared, f"compiles {part}")

    def _show(self, declared: Capabilities, *names: str) -> None:
        self.declared = declared
        self.shown |= {*names}


POLL_S = 0.005
"""Another process makes the awaited file; nothing announces it."""


class Agent(msgspec.Struct, frozen=True):
    """An adapter and the prompt that makes its agent do what a test needs."""

    adapter: Adapter
    prompt: str = "go"


class AdapterChecks(Evidence):
    """The base of every group of tests.

    Set `workspace` to an empty directory. `acts` is false if the agent's calls have no effect of their own (a
    replay). `all_or_nothing` is true if one refused call keeps its siblings from running. `in_order` is false if
    the client itself asks about parallel calls in any order. `has_client` is true if the agent is a process of its
    own that works in the workspace. `nobodys_session` is a session id in the client's format, of a session that
    does not exist. `without` names the agents below that cannot exist; one that is neither provided nor named there
    is shown as skipped.
    """

    workspace: Path
    acts = True
    all_or_nothing = False
    in_order = True
    has_client = False
    nobodys_session = "11111111-2222-4333-8444-555555555555"
    without: frozenset[str] = frozenset()

    def lacking(self, agent: str, *, declares: bool = False) -> None:
        """Skip a test that has no agent; a test that shows a declared capability cannot be skipped. Raises
        AssertionError: `declares`: the adapter says that it can do what only this agent shows.
        """
        assert not declares, f"declared, and nothing shows it: provide `{agent}`"
        if agent not in self.without:
            raise unittest.SkipTest(f"left out: provide `{agent}`, or name it in `without`")

    def making(self, *files: str, together: bool = False) -> Agent:
        """An agent that makes these files in the workspace, with a call for each, and then completes; `together`:
        all in one response. If the gate is `some`, these are calls that its client asks about.
        """
        raise NotImplementedError

    def mixing(self, file: str) -> Agent | None:
        """An agent that first makes a call its client does not ask about, and then makes the file with a call it
        does ask about; None if the client asks about all calls, or about none.
        """
        return None

    def delegating(self, file: str) -> Agent | None:
        """An agent that calls a subagent, which makes the file with a call of its own; None if its client has no
        subagents, or does not report them.
        """
        return None

    def erring(self) -> Agent | None:
        """An agent whose one call fails, proposed first if it asks about any; None if none can fail."""
        return None

    def staying(self) -> Agent | None:
        """An agent that makes the file `up` with a call that never ends, in processes that ignore SIGTERM and
        have left their session, all in the workspace; None if it has no processes.
        """
        return None

    def silent(self) -> Agent | None:
        """An agent that says something and then stays silent for ever; None if there is none."""
        return None

    def using(self) -> tuple[Agent, Usage] | None:
        """An agent that reports usage, and the total; None if it reports none. It gives two responses, so that
        reports per turn differ from one report at the end.
        """
        return None

    def failing(self) -> Agent | None:
        """An agent whose client fails; None if it cannot."""
        return None

    def garbling(self, *files: str) -> Agent | None:
        """Like `making`, with a client that also writes what are no messages; None if it writes none."""
        return None

    def truncating(self, *, lives: bool = False) -> Agent | None:
        """An agent whose client closes its output in the middle of a message, because it dies or, if it `lives`,
        although it continues; None if it writes no messages.
        """
        return None

    def offering(self) -> tuple[Agent, list[str]] | None:
        """An agent with the tools `kept` and `hidden`, and the file in which it notes those offered to its model;
        None if it does not list its tools.
        """
        return None

    def made(self) -> list[str]:
        """The files that are in the workspace."""
        return sorted(path.name for path in self.workspace.iterdir() if not path.name.startswith("."))

    def processes(self) -> list[int]:
        """The processes that run in the workspace."""
        return [process.pid for process in self._living()]

    def client(self) -> list[psutil.Process]:
        """The agent's client: the processes in the workspace that this process started."""
        return [process for process in self._living() if process.info["ppid"] == os.getpid()]

    def _living(self) -> list[psutil.Process]:
        there = psutil.process_iter(["cwd", "ppid", "status"])
        here = [process for process in there if process.info["cwd"] == str(self.workspace)]
        return [process for process in here if process.info["status"] != psutil.STATUS_ZOMBIE]

    async def run(self, agent: Agent, **gate: Any) -> Driven:
        """Run an agent to its end, in bounded time."""
        with anyio.fail_after(PATIENCE_S):
            return await Drive(agent.adapter, **gate).run(agent.prompt)

    async def up(self) -> None:
        """Wait until the call of a `staying` agent runs."""
        while "up" not in self.made():  # noqa: ASYNC110
            await anyio.sleep(POLL_S)

    def effects(self, *files: str) -> list[str]:
        """The files in the workspace after calls for these files have run."""
        return sorted(files) if self.acts else []


def terminals(done: Driven) -> list[ev.Event]:
    return [event for event in done.events if isinstance(event, ev.TERMINAL)]


def ends_once(done: Driven) -> bool:
    """Whether a stream ended with one terminal event, as its last, or with one error."""
    if done.error is not None:
        return not terminals(done)
    return len(terminals(done)) == 1 and isinstance(done.events[-1], ev.TERMINAL)


def has_failed(done: Driven) -> bool:
    """Whether the client's failure was reported once: by an error or by the last event."""
    return ends_once(done) and (done.error is not None or done.events[-1].type == "run_failed")


def completed(done: Driven) -> list[str]:
    return [event.tool_call_id for event in done.events if isinstance(event, ev.ToolCallCompleted)]


def ungated(done: Driven) -> list[ev.ToolCallStarted]:
    """The calls that began without being proposed to the gate."""
    return [event for event in done.events if isinstance(event, ev.ToolCallStarted)]


def mentions(call: ToolCall | ev.ToolCallStarted, file: str) -> bool:
    """Whether a file is named in a call's input."""
    given = call.input if isinstance(call, ToolCall) else call.tool_input
    return re.search(rf"\b{re.escape(file)}\b", json.dumps(given)) is not None


def total(done: Driven) -> Usage:
    used = Usage()
    for event in done.events:
        if isinstance(event, ev.TokenUsageUpdated):
            _add(used, event)
    return used


def _add(used: Usage, event: ev.TokenUsageUpdated) -> None:
    cumulative = event.scope == "cumulative"
    for name in TOKENS:
        before = 0 if cumulative else getattr(used, name)
        setattr(used, name, max(getattr(used, name), before + getattr(event, name)))
    if event.cost_usd is not None:
        used.cost_usd = max(used.cost_usd, (0.0 if cumulative else used.cost_usd) + event.cost_usd)
