"""A provider that falls silent is cancelled at its deadline, not at its next event."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import anyio

from proctor.policies import parse_policies
from proctor.policies.events import Event, RunCompleted, TurnStarted
from proctor.supervisor import Launch, MemoryStore, Supervisor

from .agents import Agent
from .rows import Row, Size, quantile
from .workload import events_of, steps

SILENCE_MS = 300
FLOODS = 10


def run(size: Size) -> list[Row]:
    """Milliseconds from the deadline of a silent provider to its cancel, alone and among many."""
    alone = [ms for _ in range(size.of(10, 1)) for ms in anyio.run(_lateness, 1)]
    many = anyio.run(_lateness, size.of(100, 5))
    flooded = [ms for _ in range(size.of(10, 1)) for ms in anyio.run(_lateness, 1, FLOODS)]
    return [
        Row("silent provider: cancel after its deadline, worst of 10", max(alone), "ms", 50),
        Row("100 silent at once: cancel after the deadline, p50", quantile(many, 0.5), "ms"),
        Row("100 silent at once: cancel after the deadline, worst", max(many), "ms", 50),
        Row(f"beside {FLOODS} that never wait: cancel after the deadline, p50", quantile(flooded, 0.5), "ms"),
        Row(f"beside {FLOODS} that never wait: cancel after the deadline, worst of 10", max(flooded), "ms", 50),
    ]


async def _lateness(runs: int, floods: int = 0) -> list[float]:
    session, open_to_all = events_of(steps(0, 500)), parse_policies({"name": "open"})
    policies = parse_policies({"name": "silence", "limits": {"max_idle_ms": SILENCE_MS}})
    late: list[float] = []

    def agent() -> Agent:
        last = 0.0

        async def silent(launch: Launch) -> AsyncIterator[Event]:
            nonlocal last
            last = time.perf_counter()
            yield TurnStarted(turn=1)
            await anyio.sleep_forever()

        def cancelled() -> None:
            late.append((time.perf_counter() - last) * 1000 - SILENCE_MS)

        return Agent(silent, cancelled)

    async def flood(launch: Launch) -> AsyncIterator[Event]:
        while len(late) < runs:
            for event in session:
                yield event
        yield RunCompleted(output="done")

    async with Supervisor(MemoryStore(), max_running=runs + floods) as supervisor:
        for _ in range(floods):
            await supervisor.start(Agent(flood), "go", policies=open_to_all)
        for _ in range(runs):
            await supervisor.start(agent(), "go", policies=policies)
    return late
