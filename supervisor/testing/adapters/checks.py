"""What the tests of the Adapter port share: the agents an author provides, and what is looked at."""

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
    """The start of every group of tests.

    Set `workspace` to an empty directory. `acts` is false when the agent's calls have no effect of their
    own (a replay); `all_or_nothing` is true when one refused call keeps its siblings from running;
    `in_order` is false when the client itself asks about parallel calls in whatever order; `has_client` is
    true when the agent is a process of its own that works in the workspace; `nobodys_session` is an id of a
    session as its client gives them, of one that there is not. `without` names the agents below
    that there can be none of; what is neither there nor named so is shown as skipped.
    """

    workspace: Path
    acts = True
    all_or_nothing = False
    in_order = True
    has_client = False
    nobodys_session = "11111111-2222-4333-8444-555555555555"
    without: frozenset[str] = frozenset()

    def lacking(self, agent: str, *, declares: bool = False) -> None:
        """Leave a test out that has no agent; one that shows what an adapter declares cannot be left out.

        Raises:
            AssertionError: `declares`: the adapter says that it can do what only this agent shows.
            unittest.SkipTest: `without` does not name the agent.
        """
        assert not declares, f"declared, and nothing shows it: provide `{agent}`"
        if agent not in self.without:
            raise unittest.SkipTest(f"left out: provide `{agent}`, or name it in `without`")

    def making(self, *files: str, together: bool = False) -> Agent:
        """An agent that makes these files in the workspace, a call for each, and then completes; `together`
        in one response. Where the gate is `some`, these are calls that its client asks about.
        """
        raise NotImplementedError

    def mixing(self, file: str) -> Agent | None:
        """An agent that does something its client does not ask about, and then makes the file by a call that
        it does; None if all calls are asked about, or none.
        """
        return None

    def delegating(self, file: str) -> Agent | None:
        """An agent that starts a sub-agent, by a call, which makes the file by another; None if its client has
        no sub-agents, or does not tell of them.
        """
        return None

    def erring(self) -> Agent | None:
        """An agent whose one call, asked about where any is, runs and fails; None if its calls cannot fail."""
        return None

    def staying(self) -> Agent | None:
        """An agent that makes the file `up` by a call that goes on for ever, in processes that ignore the
        terminate signal and have left their session, all in the workspace; None if it has no processes.
        """
        return None

    def silent(self) -> Agent | None:
        """An agent that says something and then nothing for ever; None if there is none."""
        return None

    def using(self) -> tuple[Agent, Usage] | None:
        """An agent that reports usage, and what it adds up to; None if it reports none. Two responses of it
        are told apart from one report at the end.
        """
        return None

    def failing(self) -> Agent | None:
        """An agent whose client fails; None if it cannot."""
        return None

    def garbling(self, *files: str) -> Agent | None:
        """As `making`, by a client that also writes lines that are not messages; None if there is no wire."""
        return None

    def truncating(self, *, lives: bool = False) -> Agent | None:
        """An agent whose client closes its output in the middle of a message: because it dies, or, where it
        `lives`, though it goes on; None if there is no wire.
        """
        return None

    def offering(self) -> tuple[Agent, list[str]] | None:
        """An agent with the tools `kept` and `hidden`, and where it notes those that its model was offered;
        None if it does not say what tools it has.
        """
        return None

    def made(self) -> list[str]:
        """The files that are in the workspace."""
        return sorted(path.name for path in self.workspace.iterdir() if not path.name.startswith("."))

    def processes(self) -> list[int]:
        """The processes that run in the workspace."""
        return [process.pid for process in self._living()]

    def client(self) -> list[psutil.Process]:
        """The agent's client: the processes in the workspace that this process has started."""
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
        """Wait for the call of a staying agent to run."""
        while "up" not in self.made():  # noqa: ASYNC110
            await anyio.sleep(POLL_S)

    def effects(self, *files: str) -> list[str]:
        """What the workspace holds when calls for these files have run."""
        return sorted(files) if self.acts else []


def terminals(done: Driven) -> list[Event]:
    """The terminal events of a stream."""
    return [event for event in done.events if isinstance(event, TERMINAL)]


def ends_once(done: Driven) -> bool:
    """Whether a stream ended by one terminal event, the last, or by one error."""
    if done.error is not None:
        return not terminals(done)
    return len(terminals(done)) == 1 and isinstance(done.events[-1], TERMINAL)


def has_failed(done: Driven) -> bool:
    """Whether the client's failure was said, once: by an error or by the last event."""
    return ends_once(done) and (done.error is not None or done.events[-1].type == "run_failed")


def completed(done: Driven) -> list[str]:
    """The ids of the calls that completed."""
    return [event.tool_call_id for event in done.events if isinstance(event, ToolCallCompleted)]


def ungated(done: Driven) -> list[ToolCallStarted]:
    """The calls that began without having been put to the gate."""
    return [event for event in done.events if isinstance(event, ToolCallStarted)]


def mentions(call: ToolCall | ToolCallStarted, file: str) -> bool:
    """Whether a file is named in a call's input."""
    given = call.input if isinstance(call, ToolCall) else call.tool_input
    return re.search(rf"\b{re.escape(file)}\b", json.dumps(given)) is not None


def total(done: Driven) -> Usage:
    """What the usage reports of a stream add up to."""
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
