"""What the lists of a full store cost, beside those of an empty one: the commands as people type them."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import anyio

from proctor.adapters.stores import SQLiteStore
from proctor.policies.events import Event, RunCompleted, RunStarted, ToolApprovalRequested, ToolCallStarted

from .rows import Row, Size

COMMANDS = (("runs",), ("runs", "--status", "running", "--tenant", "t7"), ("approvals", "--limit", "20"), ("tail",))
BOUND = 1.5


def run(size: Size) -> list[Row]:
    """Milliseconds of processor time of a command, and how many times that of an empty store."""
    runs, waiting = size.of(10_000, 100), size.of(1_000, 10)
    with tempfile.TemporaryDirectory() as folder:
        empty, full = Path(folder, "empty.db"), Path(folder, "full.db")
        anyio.run(_fill, empty, 0, 0)
        anyio.run(_fill, full, runs, waiting)
        least = {(command, path): float("inf") for command in COMMANDS for path in (empty, full)}
        for _ in range(size.of(9, 1)):
            for command, path in least:
                least[command, path] = min(least[command, path], _cpu_seconds(command, path))
    rows = []
    for command in COMMANDS:
        name = f"proctor {' '.join(command)}"
        rows.append(Row(f"{name}, empty", least[command, empty] * 1000, "ms"))
        rows.append(Row(f"{name}, {runs:,} runs and {waiting:,} that wait", least[command, full] * 1000, "ms"))
        rows.append(Row(f"{name}, full / empty", least[command, full] / least[command, empty], "x", BOUND))
    return rows


async def _fill(path: Path, runs: int, waiting: int) -> None:
    """Runs of a hundred tenants, the latest of which wait for a person."""
    async with SQLiteStore(path, synchronous="OFF") as store:
        for n in range(runs):
            ids: Any = {"run_id": f"run_{n:032x}", "session_id": f"ses_{n:032x}", "provider": "claude"}
            start = RunStarted(metadata={"context": {"tenant": f"t{n % 100}"}}, **ids)
            call = ToolCallStarted(tool_call_id="c", tool_name="bash", tool_input={"command": "ls"}, **ids)
            last: Event = RunCompleted(**ids)
            if n >= runs - waiting:
                about: Any = {"tool_call_id": "d", "tool_name": "deploy", "input_digest": "d"}
                last = ToolApprovalRequested(approval_id=f"{ids['run_id']}.1", tool_input={"to": n}, **about, **ids)
            await store.append([start, call, last])


def _cpu_seconds(command: tuple[str, ...], path: Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    compiled = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(
        [sys.executable, "-m", "proctor.adapters.cli", *command, "--store", str(path)],
        capture_output=True,
        check=True,
        env=compiled,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
