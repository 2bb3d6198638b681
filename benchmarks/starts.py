"""What it costs to start a short run and see its end, beside a bare task that appends the same events."""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import anyio
import msgspec

from proctor.adapters.stores import SQLiteStore
from proctor.policies.events import Event, RunCompleted, TurnStarted
from proctor.supervisor import Launch, MemoryStore, Store, Supervisor

from .agents import Agent
from .rows import Row, Size
from .workload import ordinary

RULES = 10
IDLE = (10, 100, 1_000, 10_000, 50_000)
"""How many runs go on meanwhile."""


def run(size: Size) -> list[Row]:
    """Milliseconds of processor time; the least of a few rounds, in turns."""
    runs, rounds = size.of(200, 5), size.of(5, 1)
    least = dict.fromkeys(("bare", "memory", "SQLite"), float("inf"))
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            events = anyio.run(_supervised, MemoryStore(), runs, least, "memory")
            anyio.run(_supervised, SQLiteStore(Path(folder, "starts.db")), runs, least, "SQLite")
            anyio.run(_bare, events, runs, least)
    among = by_running(IDLE[: size.of(3, 1)], size.of(200, 5))
    return [
        Row("a bare task that appends the same events, memory store", least["bare"], "ms"),
        Row("a short run, memory store", least["memory"], "ms", 1.5),
        Row("a short run, SQLite store, both threads", least["SQLite"], "ms"),
        Row("a short run / the bare task, memory store", least["memory"] / least["bare"], "x"),
        Row(f"a start beside {among[-1][0]:,} idle runs / beside 10", among[-1][1] / among[0][1], "x"),
    ]


async def _supervised(store: Store, runs: int, least: dict[str, float], name: str) -> list[Event]:
    async def session(launch: Launch) -> AsyncIterator[Event]:
        yield TurnStarted(turn=1)
        yield RunCompleted(output="done")

    agent, policies = Agent(session), [ordinary(RULES).policy]
    try:
        async with Supervisor(store) as supervisor:

            async def one() -> None:
                await (await supervisor.start(agent, "go", policies=policies)).wait()

            await (await supervisor.start(agent, "go", session_id="first", policies=policies)).wait()
            await _timed(one, runs, least, name)
        return [event async for event in store.read("first")]
    finally:
        await store.aclose()


async def _bare(events: list[Event], runs: int, least: dict[str, float]) -> None:
    store = MemoryStore()
    numbers = iter(range(runs * 2))

    async def append() -> None:
        n = next(numbers)
        await store.append([msgspec.structs.replace(each, run_id=f"r{n}", session_id=f"s{n}") for each in events])

    async def one() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(append)

    await _timed(one, runs, least, "bare")


async def _timed(one: Callable[[], Awaitable[None]], runs: int, least: dict[str, float], name: str) -> None:
    begun = time.process_time()
    for _ in range(runs):
        await one()
    least[name] = min(least[name], (time.process_time() - begun) / runs * 1e3)


def by_running(idle: tuple[int, ...] = IDLE, batch: int = 200) -> list[tuple[int, float]]:
    """Milliseconds of processor time of a start, by how many idle runs there are."""
    return anyio.run(_among, idle, batch)


async def _among(idle: tuple[int, ...], batch: int) -> list[tuple[int, float]]:
    async def silent(launch: Launch) -> AsyncIterator[Event]:
        yield TurnStarted(turn=1)
        await anyio.sleep_forever()

    agent, policies, points, started = Agent(silent), [ordinary(RULES).policy], [], 0
    async with Supervisor(MemoryStore(), max_running=idle[-1] + batch * len(idle)) as supervisor:
        for runs in idle:
            while started < runs:
                await supervisor.start(agent, "go", policies=policies)
                started += 1
            await anyio.wait_all_tasks_blocked()
            best = float("inf")
            for _ in range(2):
                begun = time.process_time()
                for _ in range(batch // 2):
                    await supervisor.start(agent, "go", policies=policies)
                best = min(best, (time.process_time() - begun) / (batch // 2) * 1e3)
                started += batch // 2
            points.append((runs, best))
        await supervisor.cancel_all("measured")
    return points
