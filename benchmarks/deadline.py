"""A provider that falls silent is cancelled at its deadline, not at its next event."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import anyio

from proctor.policies import parse_policies
from proctor.policies.stream.events import Event, TurnStarted
from proctor.supervisor import Launch, MemoryStore, Supervisor

from .agents import Agent
from .rows import Row, Size, quantile

SILENCE_MS = 300


def run(size: Size) -> list[Row]:
    """Milliseconds from the deadline of a silent provider to its cancel, alone and among many."""
    alone = [ms for _ in range(size.of(10, 1)) for ms in anyio.run(_lateness, 1)]
    many = anyio.run(_lateness, size.of(100, 5))
    return [
        Row("silent provider: cancel after its deadline, worst of 10", max(alone), "ms", 50),
        Row("100 silent at once: cancel after the deadline, p50", quantile(many, 0.5), "ms"),
        Row("100 silent at once: cancel after the deadline, worst", max(many), "ms", 50),
    ]


async def _lateness(runs: int) -> list[float]:
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

    async with Supervisor(MemoryStore()) as supervisor:
        for _ in range(runs):
            await supervisor.start(agent(), "go", policies=policies)
    return late
