"""How long a gate keeps a tool call waiting, its decision recorded first."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import anyio
import msgspec

from proctor.adapters.stores import SQLiteStore
from proctor.policies.events import Event, RunCompleted
from proctor.supervisor import Launch, MemoryStore, Store, Supervisor

from .agents import Agent
from .rows import Row, Size, quantile
from .workload import ordinary, steps

RULES = 10
ROWS = 2
"""A call that is let through is two events: asked for, started."""


def run(size: Size) -> list[Row]:
    """Median and 99th percentile, and their ratios to one commit; the best of a few rounds."""
    calls = size.of(2_000, 20)
    waits: dict[str, list[list[float]]] = {"memory": [], "SQLite": [], "commit": [], "group": []}
    for _ in range(size.of(5, 1)):
        with tempfile.TemporaryDirectory() as folder:
            waits["memory"].append(_waits(MemoryStore(), calls))
            waits["SQLite"].append(_waits(SQLiteStore(Path(folder, "gate.db")), calls))
            waits["commit"].append(_commits(Path(folder, "commit.db"), calls))
            waits["group"].append(anyio.run(_group_commits, Path(folder, "group.db"), calls))
    p50 = {name: min(quantile(each, 0.5) for each in rounds) * 1e6 for name, rounds in waits.items()}
    p99 = {name: min(quantile(each, 0.99) for each in rounds) * 1e6 for name, rounds in waits.items()}
    return [
        Row("gate, memory store, p50", p50["memory"], "us"),
        Row("gate, memory store, p99", p99["memory"], "us", 200),
        Row("gate, SQLite FULL, p50", p50["SQLite"], "us"),
        Row("gate, SQLite FULL, p99", p99["SQLite"], "us"),
        Row("one group commit: two events through the store, p50", p50["group"], "us"),
        Row("one group commit: two events through the store, p99", p99["group"], "us"),
        Row("one bare commit of two rows, no thread, p50", p50["commit"], "us"),
        Row("one bare commit of two rows, no thread, p99", p99["commit"], "us"),
        Row("gate on SQLite / one group commit, p50", p50["SQLite"] / p50["group"], "x", 3),
        Row("gate on SQLite / one group commit, p99", p99["SQLite"] / p99["group"], "x", 3),
        Row("gate on SQLite / one bare commit, p50", p50["SQLite"] / p50["commit"], "x"),
        Row("gate on SQLite / one bare commit, p99", p99["SQLite"] / p99["commit"], "x"),
    ]


def _waits(store: Store, calls: int) -> list[float]:
    seconds: list[float] = []

    async def session(launch: Launch) -> AsyncIterator[Event]:
        for step in steps(0, calls):
            begun = time.perf_counter()
            await launch.gate(step.call)
            seconds.append(time.perf_counter() - begun)
            yield step.completed
        yield RunCompleted(output="done")

    async def main() -> None:
        try:
            async with Supervisor(store) as supervisor:
                handle = await supervisor.start(Agent(session), "go", policies=[ordinary(RULES).policy])
                await handle.wait()
        finally:
            await store.aclose()

    anyio.run(main)
    return seconds


async def _group_commits(path: Path, calls: int) -> list[float]:
    seconds = []
    async with SQLiteStore(path) as store:
        for step in steps(0, calls):
            events = [
                msgspec.structs.replace(event, run_id="run", session_id="session")
                for event in (step.started, step.completed)
            ]
            begun = time.perf_counter()
            await store.append(events)
            seconds.append(time.perf_counter() - begun)
    return seconds


def _commits(path: Path, calls: int) -> list[float]:
    seconds = []
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("CREATE TABLE events (seq INTEGER PRIMARY KEY, data BLOB)")
        for _ in range(calls):
            begun = time.perf_counter()
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT INTO events (data) VALUES (?)", [(b"x" * 250,)] * ROWS)
            connection.execute("COMMIT")
            seconds.append(time.perf_counter() - begun)
    return seconds
