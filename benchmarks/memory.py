"""What one idle supervised run holds in memory, ten thousand of them in one fresh process."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import psutil

from proctor.policies.events import Event, TurnStarted
from proctor.supervisor import Launch, MemoryStore, Supervisor

from .agents import Agent
from .rows import Row, Size
from .workload import ordinary

RULES = 10


def run(size: Size) -> list[Row]:
    """KiB a run, its in-memory record included."""
    runs = size.of(10_000, 20)
    command = [sys.executable, "-m", f"{__package__}.memory", str(runs)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
    return [Row(f"one of {runs:,} idle supervised runs, {RULES} rules", float(done.stdout), "KiB", 20)]


async def _idle_runs(runs: int) -> float:
    policy = ordinary(RULES).policy

    async def silent(launch: Launch) -> AsyncIterator[Event]:
        yield TurnStarted(turn=1)
        await anyio.sleep_forever()

    agent = Agent(silent)
    process = psutil.Process()
    async with Supervisor(MemoryStore(), max_running=runs + 1) as supervisor:
        await supervisor.start(agent, "go", policies=[policy])  # what is made once is there before
        await anyio.wait_all_tasks_blocked()
        gc.collect()
        before = process.memory_info().rss
        for _ in range(runs):
            await supervisor.start(agent, "go", policies=[policy])
        await anyio.wait_all_tasks_blocked()
        gc.collect()
        held = process.memory_info().rss - before
        await supervisor.cancel_all("measured")
    return held / 1024 / runs


if __name__ == "__main__":
    print(anyio.run(_idle_runs, int(sys.argv[1])))
