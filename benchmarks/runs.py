"""Whole runs: what a start costs, what an idle run holds, and how late a silent one is cancelled."""

from __future__ import annotations

import gc
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import anyio
import msgspec
import psutil

from proctor.adapters.stores import SQLiteStore
from proctor.policies import parse_policies
from proctor.policies.events import Event, RunCompleted, TurnStarted
from proctor.supervisor import Launch, MemoryStore, PolicyViolationError, Store, Supervisor

from .figures import Row, Size, quantile
from .workload import RULES, Agent, events_of, ordinary, silent, steps

IDLE = (10, 100, 1_000, 10_000, 50_000)
"""How many runs go on beside a start."""
SILENCE_MS = 300
FLOODS = 10


def starts(size: Size) -> list[Row]:
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

    agent, policies = Agent(session), [ordinary().policy]
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
    agent, policies, points, started = Agent(silent), [ordinary().policy], [], 0
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


def memory(size: Size) -> list[Row]:
    """KiB of one idle supervised run, its in-memory record included; ten thousand of them in one fresh process."""
    runs = size.of(10_000, 20)
    command = [sys.executable, "-m", __name__, str(runs)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
    return [Row(f"one of {runs:,} idle supervised runs, {RULES} rules", float(done.stdout), "KiB", 20)]


async def _idle_runs(runs: int) -> float:
    agent, policies = Agent(silent), [ordinary().policy]
    process = psutil.Process()
    async with Supervisor(MemoryStore(), max_running=runs + 1) as supervisor:
        await supervisor.start(agent, "go", policies=policies)  # what is made once is there before
        await anyio.wait_all_tasks_blocked()
        gc.collect()
        before = process.memory_info().rss
        for _ in range(runs):
            await supervisor.start(agent, "go", policies=policies)
        await anyio.wait_all_tasks_blocked()
        gc.collect()
        held = process.memory_info().rss - before
        await supervisor.cancel_all("measured")
    return held / 1024 / runs


def deadline(size: Size) -> list[Row]:
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

        async def speaks_once(launch: Launch) -> AsyncIterator[Event]:
            nonlocal last
            last = time.perf_counter()
            yield TurnStarted(turn=1)
            await anyio.sleep_forever()

        def cancelled() -> None:
            if last:
                late.append((time.perf_counter() - last) * 1000 - SILENCE_MS)

        return Agent(speaks_once, cancelled)

    async def flood(launch: Launch) -> AsyncIterator[Event]:
        while len(late) < runs:
            for event in session:
                yield event
        yield RunCompleted(output="done")

    async with Supervisor(MemoryStore(), max_running=runs + floods) as supervisor:
        for _ in range(floods):
            await supervisor.start(Agent(flood), "go", policies=open_to_all)
        while len(late) < runs:  # on a busy machine a run may be over before its agent has spoken
            left = [await supervisor.start(agent(), "go", policies=policies) for _ in range(runs - len(late))]
            for handle in left:
                with suppress(PolicyViolationError):
                    await handle.wait()
    return late


if __name__ == "__main__":
    print(anyio.run(_idle_runs, int(sys.argv[1])))
