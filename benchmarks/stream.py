"""Many supervised runs into SQLite with `synchronous=FULL`, beside a loop that only batches the same rows."""

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
from proctor.policies import Policy, encode_event
from proctor.policies.events import Event, RunCompleted
from proctor.supervisor import Launch, MemoryStore, Store, Supervisor

from .agents import Agent
from .rows import Row, Size
from .workload import events_of, ordinary, steps

RUNS = 16
BATCH = 512
RULES = 10

COLUMNS = "session_key, seq, run_id, event_id, type, at, data, digest"


def run(size: Size) -> list[Row]:
    """Events a second, and the share of the bare loop's that supervision reaches."""
    calls = size.of(2_000, 20)
    session = events_of(steps(0, calls))
    policy = ordinary(RULES).policy
    best = dict.fromkeys(("bare", "alone", "memory", "supervised"), 0.0)
    for _ in range(size.of(5, 1)):
        with tempfile.TemporaryDirectory() as folder:
            records = supervised(policy, session, SQLiteStore(Path(folder, "supervised.db")), best, "supervised")
            supervised(policy, session, MemoryStore(), best, "memory")
            _bare(records, Path(folder, "bare.db"), best)
            alone(records, SQLiteStore(Path(folder, "alone.db")), best, "alone")
    return [
        Row("bare loop: encode, insert in batches of 512, commit", best["bare"], "ev/s"),
        Row("SQLite store alone, appended to in batches of 512", best["alone"], "ev/s"),
        Row(f"{RUNS} supervised runs, memory store", best["memory"], "ev/s"),
        Row(f"{RUNS} supervised runs, SQLite store", best["supervised"], "ev/s"),
        Row("supervised, SQLite / bare loop", best["supervised"] / best["bare"], "share", 0.6, at_least=True),
    ]


def supervised(policy: Policy, session: list[Event], store: Store, best: dict[str, float], name: str) -> list[Event]:
    """Judge, record and publish the session in many runs at once, from the moment all have started; returns
    what was published.
    """
    seen: list[Event] = []

    def publish(event: Event) -> None:
        seen.append(event)

    async def supervise() -> tuple[int, float]:
        all_started = anyio.Event()

        async def play(launch: Launch) -> AsyncIterator[Event]:
            await all_started.wait()
            for event in session:
                yield event
            yield RunCompleted(output="done")

        agent = Agent(play)
        async with Supervisor(store, publishers=[publish]) as supervisor:
            for _ in range(RUNS):
                await supervisor.start(agent, "go", policies=[policy])
            await anyio.wait_all_tasks_blocked()
            before, begun = len(seen), time.perf_counter()
            all_started.set()
        return len(seen) - before, time.perf_counter() - begun

    async def main() -> tuple[int, float]:
        try:
            return await supervise()
        finally:
            await store.aclose()

    count, seconds = anyio.run(main)
    best[name] = max(best[name], count / seconds)
    return seen


def _bare(records: list[Event], path: Path, best: dict[str, float]) -> None:
    with closing(_schema_of_a_store(path)) as connection:
        begun = time.perf_counter()
        for first in range(0, len(records), BATCH):
            rows = [
                (1, first + n, event.run_id, None, event.type, 0, encode_event(event), b"")
                for n, event in enumerate(records[first : first + BATCH], 1)
            ]
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(f"INSERT INTO events ({COLUMNS}) VALUES (?,?,?,?,?,?,?,?)", rows)
            connection.execute("COMMIT")
        best["bare"] = max(best["bare"], len(records) / (time.perf_counter() - begun))


def _schema_of_a_store(path: Path) -> sqlite3.Connection:
    async def made() -> None:
        await SQLiteStore(path).aclose()

    anyio.run(made)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("INSERT INTO sessions (session_id) VALUES ('bare')")
    return connection


def by_batch() -> dict[str, list[tuple[int, float]]]:
    """Microseconds of wall time an event against the events of one append, for the plot: least of three rounds."""
    events = [each for n in range(8) for each in _of_run(f"s{n}", f"r{n}", events_of(steps(0, 256)))]
    curves: dict[str, list[tuple[int, float]]] = {}
    for batch in (1, 8, 64, 512):
        part = events[: 256 * min(batch, 16)]
        for name in ("memory store", "SQLite store, `synchronous=FULL`"):
            with tempfile.TemporaryDirectory() as folder:
                best: dict[str, float] = {name: 0.0}
                for n in range(3):
                    store = MemoryStore() if name.startswith("memory") else SQLiteStore(Path(folder, f"{n}.db"))
                    alone(part, store, best, name, batch)
            curves.setdefault(name, []).append((batch, 1e6 / best[name]))
    return curves


def _of_run(session_id: str, run_id: str, events: list[Event]) -> list[Event]:
    return [msgspec.structs.replace(event, session_id=session_id, run_id=run_id) for event in events]


def alone(records: list[Event], store: Store, best: dict[str, float], name: str, batch: int = BATCH) -> None:
    """Append the events in batches, one after another."""

    async def main() -> float:
        try:
            begun = time.perf_counter()
            for first in range(0, len(records), batch):
                await store.append(records[first : first + batch])
            return time.perf_counter() - begun
        finally:
            await store.aclose()

    best[name] = max(best[name], len(records) / anyio.run(main))
