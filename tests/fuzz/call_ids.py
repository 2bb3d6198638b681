"""Agents that reuse a few call ids, in one response and in several, on every adapter.

A bypass is an action that ran although it was denied, exceeded a limit, or has no recorded start; a run without one
end; or an event log whose evaluation differs from the run's.
"""

import os
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

import anyio
import msgspec

from proctor.policies import Policy, parse_policies
from proctor.policies import events as ev
from proctor.supervisor import Adapter, MemoryStore, PolicyViolationError, ProviderError, run_once
from proctor.supervisor.testing.fakes import PATIENCE_S

from .ledger import Share

MOST: Final = 4
ACTS: Final = ("act", "act", "once", "forbidden")


class ProposedCall(msgspec.Struct, frozen=True):
    """One call of a model: its id, its tool, and a number that identifies its action."""

    id: str
    tool: str
    n: int


Ran: TypeAlias = list[tuple[str, int]]
Responses: TypeAlias = Sequence[Sequence[ProposedCall]]


class Played(msgspec.Struct):
    """The actions that really ran, as (tool, number), and the recorded events."""

    ran: Ran
    events: list[ev.Event]


def outcomes(events: Sequence[ev.Event]) -> list[str]:
    """The outcomes of calls, in order; a start that the gate did not allow counts as one."""
    kinds = (ev.ToolCallCompleted, ev.ToolCallFailed, ev.ToolCallStarted)
    return [event.type.removeprefix("tool_call_") for event in events if isinstance(event, kinds)]


Driver: TypeAlias = Callable[[Responses, list[Policy]], Awaitable[Played]]


def policies(*, commands: bool = False) -> list[Policy]:
    """Four calls in all, one of `once`, none of `forbidden`; for an agent with only commands, by their text."""

    def tool(name: str) -> Any:
        return {"tool": "bash", "where": [{"path": "$.command", "contains": name}]} if commands else name

    return parse_policies(
        {
            "version": 1,
            "name": "p",
            "on_violation": "deny",
            "limits": {"max_tool_calls": {"max": MOST, "scope": "session", "action": "deny"}},
            "tool_rules": [{"deny": [tool("forbidden")]}],
            "rules": [{"type": "count", "tool": tool("once"), "max": 1}],
        }
    )


def command(call: ProposedCall) -> str:
    """A call as a command line that records its action."""
    return f"echo {call.tool} {call.n} >> log"


async def supervised(adapters: list[Adapter], policies: list[Policy], ran: Ran) -> Played:
    """Runs of one session, one after the other."""
    store = MemoryStore()
    for adapter in adapters:
        runs = await store.runs()
        session_id = runs[0].session_id if runs else None
        with suppress(PolicyViolationError, ProviderError):  # frameworks reject some ids themselves
            await run_once(adapter, "go", policies=policies, store=store, session_id=session_id)
    [session_id] = {run.session_id for run in await store.runs()}
    return Played(ran, [event async for event in store.read(session_id)])


def of_commands(log: Path, events: list[ev.Event]) -> Played:
    """The actions of command lines, and their starts as those of the actions."""

    def act(event: ev.Event) -> ev.Event:
        if not isinstance(event, ev.ToolCallStarted):
            return event
        tool, n = re.findall(r"echo (\w+) (\d+)", str(event.tool_input))[0]
        return msgspec.structs.replace(event, tool_name=tool, tool_input={"n": int(n)})

    ran = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
    return Played([(tool, int(n)) for tool, n in ran], [act(event) for event in events])


def examples() -> range:
    """Numbers of scripts for clients: only the first, or those of the long run."""
    first, several = (
        int(os.environ.get(name, default)) for name, default in (("PROCTOR_SEED", "0"), ("PROCTOR_IDS", "1"))
    )
    return range(first, first + several)


async def at_random(example: int, log: Path, play: Callable[[Responses], Adapter]) -> None:
    """A script on a real client or its stand-in, whose commands write to `log`; `play` creates an adapter for it.

    Raises AssertionError for a bypass.
    """
    script = responses(random.Random(example))
    with anyio.fail_after(PATIENCE_S):
        played = await supervised([play(script)], policies(commands=True), [])
    assert [*found(of_commands(log, played.events))] == [], script


def responses(rng: random.Random) -> Responses:
    """Up to six responses of up to three calls, with three ids; the same call may come again."""
    numbers = iter(range(100))
    made: list[list[ProposedCall]] = []
    for _ in range(rng.randint(2, 6)):
        several: list[ProposedCall] = []
        for _ in range(rng.choice([1, 1, 2, 3])):
            before = [each for response in (*made, several) for each in response]
            if before and rng.random() < 0.3:
                several.append(rng.choice(before))
            else:
                several.append(ProposedCall(rng.choice("abc"), rng.choice(ACTS), next(numbers)))
        made.append(several)
    return made


def found(played: Played) -> Iterator[str]:
    """The bypasses."""
    ran = Counter(played.ran)
    tools = Counter(tool for tool, _ in played.ran)
    if tools["forbidden"]:
        yield "what is forbidden ran"
    if tools["once"] > 1:
        yield f"`once` ran {tools['once']} times"
    if len(played.ran) > MOST:
        yield f"{len(played.ran)} calls ran of {MOST}"
    started = Counter(
        (event.tool_name, int(event.tool_input["n"]))
        for event in played.events
        if isinstance(event, ev.ToolCallStarted)
    )
    if unrecorded := ran - started:
        yield f"ran without a start in the record: {dict(unrecorded)}"
    ends = Counter(
        event.run_id for event in played.events if isinstance(event, ev.RunCompleted | ev.RunFailed | ev.RunCancelled)
    )
    for run_id in {event.run_id for event in played.events}:
        if ends[run_id] != 1:
            yield f"the run `{run_id}` has {ends[run_id]} ends"


def ids_on(drivers: dict[str, Driver], examples: int, seed: int, number: int) -> Share:
    """This many scripts on each of the adapters."""
    counts: Counter[str] = Counter()
    ways: list[str] = []

    async def play() -> None:
        for name, drive in drivers.items():
            for each in range(examples):
                rng = random.Random((seed * 1_000_003 + number) * 1_009 + each)
                script = responses(rng)
                try:
                    with anyio.fail_after(60):
                        played = await drive(script, policies())
                    past = list(found(played))
                except Exception as error:
                    past, played = [f"it broke: {error!r}"], Played([], [])
                ways.extend(f"{name}, example {each}, share {number} of seed {seed}: {way}; {script}" for way in past)
                calls: list[Any] = [call for response in script for call in response]
                counts["sessions"] += 1
                counts["calls asked for"] += len(calls)
                counts["ids used again"] += len(calls) - len({call.id for call in calls})
                counts["acts that ran"] += len(played.ran)

    anyio.run(play)
    return Share(dict(counts), ways)
