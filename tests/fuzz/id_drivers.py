"""Each adapter in this process, running scripts of calls with reused ids."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

from proctor.adapters import FunctionAdapter, LoopGate, ReplayAdapter, ScriptedAdapter, ShellAdapter, ToolRefused
from proctor.policies import Policy
from proctor.policies.events import Event, MessageReceived, ToolCallCompleted, ToolCallRequested, TurnStarted
from proctor.policies.events import ToolCallStarted as Started
from proctor.supervisor.ports.adapter import Adapter, Launch
from tests import framework_bench

from .call_ids import Driver, Played, ProposedCall, Ran, Responses, command, ids_on, of_commands, supervised
from .call_ids import policies as policies_of
from .id_wires import hook, proxy
from .ledger import Share

NAMES: Final = ("act", "once", "forbidden")
EXAMPLES: Final = 10
"""Of one share, on each adapter."""


def tools(ran: Ran) -> list[Callable[[int], str]]:
    """Functions that record their calls."""

    def tool(name: str) -> Callable[[int], str]:
        def run(n: int) -> str:
            ran.append((name, n))
            return "done"

        run.__name__, run.__doc__ = name, "Do it."
        return run

    return [tool(name) for name in NAMES]


async def function(script: Responses, policies: list[Policy]) -> Played:
    """A custom loop that runs the calls of a response concurrently."""
    ran: Ran = []

    async def loop(gate: LoopGate, prompt: str) -> str:
        async def call(wanted: ProposedCall) -> None:
            async def act(given: dict[str, Any]) -> str:
                await anyio.lowlevel.checkpoint()
                ran.append((wanted.tool, given["n"]))
                return "done"

            with suppress(ToolRefused):
                await gate.call(wanted.tool, {"n": wanted.n}, act, call_id=wanted.id)

        for response in script:
            await gate.turn()
            async with anyio.create_task_group() as tasks:
                for wanted in response:
                    tasks.start_soon(call, wanted)
        return "done"

    return await supervised([FunctionAdapter(loop)], policies, ran)


async def scripted(script: Responses, policies: list[Policy]) -> Played:
    """Each response is a run of the session, in which its ids may not be reused."""
    ran: Ran = []
    own = {tool.__name__: tool for tool in tools(ran)}
    adapters: list[Adapter] = []
    for response in script:
        once = {wanted.id: wanted for wanted in response}.values()
        steps = [{"call": each.tool, "input": {"n": each.n}, "id": each.id} for each in once]
        adapters.append(ScriptedAdapter({"steps": [{"parallel": steps}] if len(steps) > 1 else steps}, tools=own))
    return await supervised(adapters, policies, ran)


async def replay(script: Responses, policies: list[Policy]) -> Played:
    """A recording with reused ids. Nothing runs, so the reported calls count as run."""
    events: list[Event] = []
    for turn, response in enumerate(script, 1):
        events.append(TurnStarted(turn=turn))
        for wanted in response:
            call: dict[str, Any] = {"tool_call_id": wanted.id, "tool_name": wanted.tool}
            given = {**call, "tool_input": {"n": wanted.n}, "turn": turn}
            events += [ToolCallRequested(**given), Started(**given), ToolCallCompleted(**call, tool_output="done")]
    events.append(MessageReceived(content="done"))
    played = await supervised([ReplayAdapter(events)], policies, [])
    started = [event for event in played.events if isinstance(event, Started)]
    played.ran = [(event.tool_name, event.tool_input["n"]) for event in started]
    return played


def of_framework(make: Callable[..., Adapter]) -> Driver:
    """A real framework agent with a model that requests all calls of a response together."""

    async def play(script: Responses, policies: list[Policy]) -> Played:
        ran: Ran = []
        calls = [[(each.id, each.tool, {"n": each.n}) for each in response] for response in script]
        return await supervised([make(calls, functions=tools(ran))], policies, ran)

    return play


async def shell(script: Responses, policies: list[Policy]) -> Played:
    """Each call is a command line that is a run of the session; every run's call has the same id."""
    with tempfile.TemporaryDirectory() as folder:
        adapters: list[Adapter] = [Line(folder, command(call)) for response in script for call in response]
        played = await supervised(adapters, policies_of(commands=True), [])
        return of_commands(Path(folder) / "log", played.events)


class Line(ShellAdapter):
    """One command line, whatever the prompt is."""

    def __init__(self, folder: str, line: str) -> None:
        super().__init__(cwd=folder)
        self._line = line

    def open(self, launch: Launch) -> Any:
        return super().open(msgspec.structs.replace(launch, prompt=self._line))


IN_PROCESS: Final[dict[str, Driver]] = {
    "function": function,
    "hook": hook,
    "proxy": proxy,
    "langchain": of_framework(framework_bench.langchain),
    "openai-agents": of_framework(framework_bench.openai_agents),
    "pydantic-ai": of_framework(framework_bench.pydantic_ai),
    "replay": replay,
    "scripted": scripted,
    "shell": shell,
}


def ids(seed: int, number: int) -> Share:
    """One share."""
    return ids_on(IN_PROCESS, EXAMPLES, seed, number)
