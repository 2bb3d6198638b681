"""What looking for secrets costs an event and a call at the gate, in a supervised run on a store in memory."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import anyio

from proctor.policies.events import Event, RunCompleted
from proctor.supervisor import Launch, MemoryStore, Redaction, Supervisor

from .agents import Agent, Session
from .rows import Row, Size
from .workload import events_of, ordinary, steps

RULES = 10


def run(size: Size) -> list[Row]:
    """Microseconds of processor time with redaction and without it; the least of a few rounds, in turns."""
    calls = size.of(2_000, 20)
    works = {"an event": (_playing(calls), 2 * calls), "a call at the gate": (_asking(calls), calls)}
    kinds = {"on": Redaction(), "off": Redaction(off=True)}
    least = {(work, kind): float("inf") for work in works for kind in kinds}
    for _ in range(size.of(5, 1)):
        for (work, kind), best in least.items():
            session, count = works[work]
            least[work, kind] = min(best, anyio.run(_seconds, session, kinds[kind]) / count * 1e6)
    rows = [Row(f"{work}, redaction {kind}", us, "us") for (work, kind), us in least.items()]
    return [
        *rows,
        *(Row(f"{work}, redaction on / off", least[work, "on"] / least[work, "off"], "x") for work in works),
    ]


async def _seconds(session: Session, redaction: Redaction) -> float:
    async with Supervisor(MemoryStore(), redaction=redaction) as supervisor:
        begun = time.process_time()
        await (await supervisor.start(Agent(session), "go", policies=[ordinary(RULES).policy])).wait()
        return time.process_time() - begun


def _playing(calls: int) -> Session:
    events = events_of(steps(0, calls))

    async def session(launch: Launch) -> AsyncIterator[Event]:
        for event in events:
            yield event
        yield RunCompleted(output="done")

    return session


def _asking(calls: int) -> Session:
    made = steps(0, calls)

    async def session(launch: Launch) -> AsyncIterator[Event]:
        for step in made:
            await launch.gate(step.call)
            yield step.completed
        yield RunCompleted(output="done")

    return session
