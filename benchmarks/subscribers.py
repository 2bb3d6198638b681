"""What an event costs where people follow it: the same supervised runs, followed by more and more subscribers."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import anyio

from proctor.policies.events import TERMINAL, Event, RunCompleted
from proctor.supervisor import Launch, MemoryStore, Supervisor

from .agents import Agent
from .rows import Row, Size
from .workload import events_of, ordinary, steps

RULES = 10
SUBSCRIBERS = (0, 1, 10, 100)


def run(size: Size) -> list[Row]:
    """Microseconds of processor time an event and a subscriber; the least of a few rounds, in turns."""
    least = measured(size.of(500, 10), size.of(3, 1))
    alone = least[0]
    rows = [Row(f"an event, {count} subscribers of its run", us, "us") for count, us in least.items()]
    each = (least[100] - alone) / 100
    return [*rows, Row("an event for one more subscriber / the event itself", each / alone, "x")]


def measured(calls: int, rounds: int) -> dict[int, float]:
    """Microseconds an event, by the number of subscribers."""
    least = dict.fromkeys(SUBSCRIBERS, float("inf"))
    session = events_of(steps(0, calls))
    for _ in range(rounds):
        for count in SUBSCRIBERS:
            seconds = anyio.run(_followed, session, count)
            least[count] = min(least[count], seconds / len(session) * 1e6)
    return least


async def _followed(session: list[Event], count: int) -> float:
    go = anyio.Event()

    async def speaking(launch: Launch) -> AsyncIterator[Event]:
        await go.wait()
        for event in session:
            yield event
        yield RunCompleted(output="done")

    async def follow(supervisor: Supervisor) -> None:
        async with supervisor.subscribe(run_id="r") as events:
            async for event in events:
                if isinstance(event, TERMINAL):
                    return

    async with Supervisor(MemoryStore()) as supervisor:
        handle = await supervisor.start(Agent(speaking), "go", run_id="r", policies=[ordinary(RULES).policy])
        async with anyio.create_task_group() as tasks:
            for _ in range(count):
                tasks.start_soon(follow, supervisor)
            await anyio.wait_all_tasks_blocked()
            begun = time.process_time()
            go.set()
            await handle.wait()
        return time.process_time() - begun
