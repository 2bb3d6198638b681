"""Events a second into PostgreSQL, beside loops of its driver that only batch the same rows, and beside SQLite; each
commit is on disk before the next.
"""

from __future__ import annotations

import importlib
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import psycopg

from proctor.adapters.stores import PostgresStore, SQLiteStore
from proctor.policies import encode_event
from proctor.policies.events import Event

from .rows import Row, Size
from .stream import BATCH, RULES, RUNS, alone, supervised
from .workload import events_of, ordinary, steps

_COLUMNS = "position, session_key, seq, run_id, event_id, type, at, data, digest"
_UNNEST = f"""INSERT INTO events ({_COLUMNS}) SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[],
    %s::text[], %s::text[], %s::text[], %s::bigint[], %s::bytea[], %s::bytea[])"""
_EACH = f"INSERT INTO events ({_COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)"
_Insert: TypeAlias = Callable[[psycopg.Connection[Any], list[tuple[Any, ...]]], object]


def run(size: Size) -> list[Row]:
    """Events a second, and shares of the bare loops' and of SQLite's."""
    server: Any = importlib.import_module("tests.postgres_server").OwnServer(fsync="on")
    try:
        server.start()
        return _rows(_measured(size, server.url()))
    finally:
        server.close()


def _measured(size: Size, url: str) -> dict[str, float]:
    session = events_of(steps(0, size.of(2_000, 20)))
    policy = ordinary(RULES).policy
    best = dict.fromkeys(("unnest", "executemany", "alone", "supervised", "SQLite alone", "SQLite supervised"), 0.0)
    for _ in range(size.of(5, 1)):
        with tempfile.TemporaryDirectory() as folder:
            records = supervised(policy, session, _new(url), best, "supervised")
            supervised(policy, session, SQLiteStore(Path(folder, "supervised.db")), best, "SQLite supervised")
            _bare(records, url, _by_unnest, best, "unnest")
            _bare(records, url, _by_executemany, best, "executemany")
            alone(records, _new(url), best, "alone")
            alone(records, SQLiteStore(Path(folder, "alone.db")), best, "SQLite alone")
    return best


def _rows(best: dict[str, float]) -> list[Row]:
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


def _by_unnest(connection: psycopg.Connection[Any], rows: list[tuple[Any, ...]]) -> None:
    connection.execute(_UNNEST, [list(column) for column in zip(*rows, strict=True)])


def _by_executemany(connection: psycopg.Connection[Any], rows: list[tuple[Any, ...]]) -> None:
    connection.cursor().executemany(_EACH, rows)


def _new(url: str) -> PostgresStore:
    return PostgresStore(url, schema=f"b{uuid.uuid4().hex}")


def _bare(records: list[Event], url: str, insert: _Insert, best: dict[str, float], name: str) -> None:
    """Insert the events in batches into the tables of a store."""
    schema = f"b{uuid.uuid4().hex}"

    async def made() -> None:
        await PostgresStore(url, schema=schema).aclose()

    anyio.run(made)
    with psycopg.connect(url, autocommit=True, options=f"-c search_path={schema}") as connection:
        begun = time.perf_counter()
        for first in range(0, len(records), BATCH):
            rows = [
                (n, 1, n, event.run_id, None, event.type, 0, encode_event(event), b"")
                for n, event in enumerate(records[first : first + BATCH], first + 1)
            ]
            with connection.transaction():
                insert(connection, rows)
        best[name] = max(best[name], len(records) / (time.perf_counter() - begun))
