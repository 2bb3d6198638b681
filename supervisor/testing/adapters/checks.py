"""What the tests of the Adapter port share: the agents that an author provides, and helpers that inspect a run."""

from __future__ import annotations

import json
import os
import re
import unittest
from pathlib import Path
from typing import Any

import anyio
import msgspec
import psutil

from proctor.policies.stream.calls import ToolCall, Usage
from proctor.policies.stream.events import TERMINAL, Event, TokenUsageUpdated, ToolCallCompleted, ToolCallStarted
from proctor.supervisor.ports.adapters import Adapter

from ..patience import PATIENCE_S
from .driving import Drive, Driven
from .evidence import Evidence

POLL_S = 0.005
"""Another process makes the awaited file; nothing announces it."""
TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")


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
        """Skip a test that has no agent; a test that shows a declared capability cannot be skipped.

        Raises:
            AssertionError: `declares`: the adapter says that it can do what only this agent shows.
            unittest.SkipTest: `without` does not name the agent.
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
        """An agent that calls a sub-agent, which makes the file with a call of its own; None if its client has no
        sub-agents, or does not report them.
        """
        return None

    def erring(self) -> Agent | None:
        """An agent whose one call runs and fails, proposed first if the client asks about any; None if its calls
        cannot fail.
        """
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
        """Like `making`, with a client that also writes lines that are not messages; None if it writes no
        messages.
        """
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
        """What the workspace holds when calls for these files have run."""
        return sorted(files) if self.acts else []


def terminals(done: Driven) -> list[Event]:
    """The terminal events of a stream."""
    return [event for event in done.events if isinstance(event, TERMINAL)]


def ends_once(done: Driven) -> bool:
    """Whether a stream ended with one terminal event, as its last, or with one error."""
    if done.error is not None:
        return not terminals(done)
    return len(terminals(done)) == 1 and isinstance(done.events[-1], TERMINAL)


def has_failed(done: Driven) -> bool:
    """Whether the client's failure was reported once: by an error or by the last event."""
    return ends_once(done) and (done.error is not None or done.events[-1].type == "run_failed")


def completed(done: Driven) -> list[str]:
    """The ids of the calls that completed."""
    return [event.tool_call_id for event in done.events if isinstance(event, ToolCallCompleted)]


def ungated(done: Driven) -> list[ToolCallStarted]:
    """The calls that began without being proposed to the gate."""
    return [event for event in done.events if isinstance(event, ToolCallStarted)]


def mentions(call: ToolCall | ToolCallStarted, file: str) -> bool:
    """Whether a file is named in a call's input."""
    given = call.input if isinstance(call, ToolCall) else call.tool_input
    return re.search(rf"\b{re.escape(file)}\b", json.dumps(given)) is not None


def total(done: Driven) -> Usage:
    """The sum of the usage reports of a stream."""
    used = Usage()
    for event in done.events:
        if isinstance(event, TokenUsageUpdated):
            _add(used, event)
    return used


def _add(used: Usage, event: TokenUsageUpdated) -> None:
    cumulative = event.scope == "cumulative"
    for name in TOKENS:
        before = 0 if cumulative else getattr(used, name)
        setattr(used, name, max(getattr(used, name), before + getattr(event, name)))
    if event.cost_usd is not None:
        used.cost_usd = max(used.cost_usd, (0.0 if cumulative else used.cost_usd) + event.cost_usd)
