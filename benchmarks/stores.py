"""Events into stores: supervised runs, beside loops that only batch the same rows, and what they take on disk."""

from __future__ import annotations

import importlib
import sqlite3
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import msgspec
import psycopg

from proctor.adapters.stores import PostgresStore, SQLiteStore
from proctor.policies import Policy, encode_event
from proctor.policies.events import Event, RunCompleted
from proctor.supervisor import Launch, MemoryStore, Store, Supervisor

from .figures import Row, Size
from .workload import Agent, events_of, ordinary, playing, steps

RUNS = 16
BATCH = 512
BATCHES = (1, 8, 64, 512)
MILLION = 1_000_000
COLUMNS = "session_key, seq, run_id, event_id, type, at, data, digest"
_EACH = f"INSERT INTO events ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_EACH_POSTGRES = f"INSERT INTO events (position, {COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)"
_UNNEST = f"""INSERT INTO events (position, {COLUMNS}) SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[],
    %s::text[], %s::text[], %s::text[], %s::bigint[], %s::bytea[], %s::bytea[])"""
_Best: TypeAlias = dict[str, float]
_Insert: TypeAlias = Callable[[psycopg.Connection[Any], list[tuple[Any, ...]]], object]


def stream(size: Size) -> list[Row]:
    """Events a second into SQLite with `synchronous=FULL`, and the share of the bare loop's that runs have."""
    session, policy = events_of(steps(0, size.of(2_000, 20))), ordinary().policy
    best: _Best = {}
    for _ in range(size.of(5, 1)):
        with tempfile.TemporaryDirectory() as folder:
            records = _supervised(policy, session, SQLiteStore(Path(folder, "supervised.db")), best, "supervised")
            _supervised(policy, session, MemoryStore(), best, "memory")
            _bare(records, Path(folder, "bare.db"), best)
            _alone(records, SQLiteStore(Path(folder, "alone.db")), best, "alone")
    return [
        Row("bare loop: encode, insert in batches of 512, commit", best["bare"], "ev/s"),
        Row("SQLite store alone, appended to in batches of 512", best["alone"], "ev/s"),
        Row(f"{RUNS} supervised runs, memory store", best["memory"], "ev/s"),
        Row(f"{RUNS} supervised runs, SQLite store", best["supervised"], "ev/s"),
        Row("supervised, SQLite / bare loop", best["supervised"] / best["bare"], "share", 0.6, at_least=True),
    ]


def postgres(size: Size) -> list[Row]:
    """Events a second into PostgreSQL, each commit on disk before the next, and shares of the bare loops' of its
    driver and of SQLite's.
    """
    session, policy = events_of(steps(0, size.of(2_000, 20))), ordinary().policy
    best: _Best = {}
    with _server() as url:
        for _ in range(size.of(5, 1)):
            with tempfile.TemporaryDirectory() as folder:
                records = _supervised(policy, session, _new(url), best, "supervised")
                on_file = SQLiteStore(Path(folder, "supervised.db"))
                _supervised(policy, session, on_file, best, "SQLite supervised")
                _bare_postgres(records, url, _by_unnest, best, "unnest")
                _bare_postgres(records, url, _by_executemany, best, "executemany")
                _alone(records, _new(url), best, "alone")
                _alone(records, SQLiteStore(Path(folder, "alone.db")), best, "SQLite alone")
    return [
        Row(f"bare loop: encode, `unnest` of {BATCH} rows, commit", best["unnest"], "ev/s"),
        Row(f"bare loop: encode, `executemany` of {BATCH} rows, commit", best["executemany"], "ev/s"),
        Row(f"PostgreSQL store alone, appended to in batches of {BATCH}", best["alone"], "ev/s"),
        Row(f"{RUNS} supervised runs, PostgreSQL store", best["supervised"], "ev/s"),
        Row(f"SQLite store alone, appended to in batches of {BATCH}", best["SQLite alone"], "ev/s"),
        Row(f"{RUNS} supervised runs, SQLite store", best["SQLite supervised"], "ev/s"),
        Row("PostgreSQL store alone / `unnest`", best["alone"] / best["unnest"], "share"),
        Row("PostgreSQL store alone / `executemany`", best["alone"] / best["executemany"], "share"),
        Row("PostgreSQL store alone / SQLite store alone", best["alone"] / best["SQLite alone"], "share"),
        Row("supervised, PostgreSQL / `unnest`", best["supervised"] / best["unnest"], "share"),
        Row("supervised, PostgreSQL / SQLite", best["supervised"] / best["SQLite supervised"], "share"),
    ]


def by_batch() -> dict[str, list[tuple[int, float]]]:
    """Microseconds of wall time an event against the events of one append, for the plot: least of three rounds."""
    events = [
        msgspec.structs.replace(event, session_id=f"s{n}", run_id=f"r{n}")
        for n in range(8)
        for event in events_of(steps(0, 256))
    ]
    curves: dict[str, list[tuple[int, float]]] = {}
    with _server() as url, tempfile.TemporaryDirectory() as folder:
        kinds: dict[str, Callable[[], Store]] = {
            "memory store": MemoryStore,
            "SQLite store, `synchronous=FULL`": lambda: SQLiteStore(Path(folder, f"{uuid.uuid4().hex}.db")),
            "PostgreSQL store, `fsync=on`": lambda: _new(url),
        }
        for batch in BATCHES:
            best: _Best = {}
            for _ in range(3):
                for name, new in kinds.items():
                    _alone(events[: 256 * min(batch, 16)], new(), best, name, batch)
            for name, figure in best.items():
                curves.setdefault(name, []).append((batch, 1e6 / figure))
    return curves


def disk(size: Size) -> list[Row]:
    """MiB of a million events, short calls with short results; what yours say is added to that."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "runs.db")
        lines = anyio.run(_record, path, size.of(10_000, 20))
        stored = path.stat().st_size
    sizes = {"SQLite file": stored, "the same events as lines of JSON": len(b"\n".join(lines))}
    return [
        Row(f"{work}, a million events", found / len(lines) * MILLION / 2**20, "MiB") for work, found in sizes.items()
    ]


async def _record(path: Path, calls: int) -> list[bytes]:
    """Supervise a session into a file; returns its events as they are exported."""
    agent = Agent(playing(events_of(steps(0, calls))))
    async with SQLiteStore(path) as store:
        async with Supervisor(store) as supervisor:
            handle = await supervisor.start(agent, "go", policies=[ordinary().policy])
            await handle.wait()
        return [encode_event(event) async for event in store.read(handle.session_id)]


def _supervised(policy: Policy, session: list[Event], store: Store, best: _Best, name: str) -> list[Event]:
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
    _keep(best, name, count / seconds)
    return seen


def _alone(records: list[Event], store: Store, best: _Best, name: str, batch: int = BATCH) -> None:
    """Append the events in batches, one after another."""

    async def main() -> float:
        try:
            begun = time.perf_counter()
            for first in range(0, len(records), batch):
                await store.append(records[first : first + batch])
            return time.perf_counter() - begun
        finally:
            await store.aclose()

    _keep(best, name, len(records) / anyio.run(main))


def _bare(records: list[Event], path: Path, best: _Best) -> None:
    """Insert the events in batches into the tables of a SQLite store."""
    anyio.run(SQLiteStore(path).aclose)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("INSERT INTO sessions (session_id) VALUES ('bare')")
        begun = time.perf_counter()
        for rows in _rows(records):
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(_EACH, [row[1:] for row in rows])
            connection.execute("COMMIT")
        _keep(best, "bare", len(records) / (time.perf_counter() - begun))


def _bare_postgres(records: list[Event], url: str, insert: _Insert, best: _Best, name: str) -> None:
    """Insert the events in batches into the tables of a PostgreSQL store."""
    schema = f"b{uuid.uuid4().hex}"
    anyio.run(PostgresStore(url, schema=schema).aclose)
    with psycopg.connect(url, autocommit=True, options=f"-c search_path={schema}") as connection:
        begun = time.perf_counter()
        for rows in _rows(records):
            with connection.transaction():
                insert(connection, rows)
        _keep(best, name, len(records) / (time.perf_counter() - begun))


def _rows(records: list[Event]) -> Iterator[list[tuple[Any, ...]]]:
    """The rows of each batch, with their positions."""
    for first in range(0, len(records), BATCH):
        yield [
            (n, 1, n, event.run_id, None, event.type, 0, encode_event(event), b"")
            for n, event in enumerate(records[first : first + BATCH], first + 1)
        ]


def _by_unnest(connection: psycopg.Connection[Any], rows: list[tuple[Any, ...]]) -> None:
    connection.execute(_UNNEST, [list(column) for column in zip(*rows, strict=True)])


def _by_executemany(connection: psycopg.Connection[Any], rows: list[tuple[Any, ...]]) -> None:
    connection.cursor().executemany(_EACH_POSTGRES, rows)


@contextmanager
def _server() -> Iterator[str]:
    with importlib.import_module("tests.postgres_server").OwnServer(fsync="on") as server:
        yield server.url()


def _new(url: str) -> PostgresStore:
    return PostgresStore(url, schema=f"b{uuid.uuid4().hex}")


def _keep(best: _Best, name: str, figure: float) -> None:
    best[name] = max(best.get(name, 0.0), figure)
