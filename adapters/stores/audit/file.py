"""A store's file, read in one moment and never written."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from proctor.supervisor.errors import StoreError, UsageError

from ..sqlite.file.failures import store_error
from ..sqlite.file.opening import connect
from ..sqlite.schema.tables import SCHEMA_VERSION, check_version
from .sources import RECORDS, RUNS, Source
from .verifying import StoredRecord

_BUSY_S = 10.0
_RECORDS = (
    f"SELECT {RECORDS}, coalesce(digest, x'') FROM events LEFT JOIN sessions ON key = session_key ORDER BY position"
)


@contextmanager
def reading_file(named: str | os.PathLike[str]) -> Iterator[Source]:
    """What is in a file. Raises StoreError where it cannot be read, UsageError where there is none."""
    path = Path(named)
    try:
        with _connected(path) as connection:
            store_id = _one(connection, "SELECT store_id FROM store", "")
            stored = _one(connection, "SELECT seq FROM sqlite_sequence WHERE name = 'events'", 0)
            yield Source(store_id, stored, _records(connection), connection.execute(RUNS))
    except sqlite3.Error as error:
        raise store_error(error, path) from error


@contextmanager
def _connected(path: Path) -> Iterator[sqlite3.Connection]:
    if not path.is_file():
        raise UsageError(f"there is no store at `{path}`; `--store` names another")
    connection = connect(path, "ro", busy_timeout_s=_BUSY_S)
    try:
        connection.execute("BEGIN")  # others may write meanwhile: this is one moment
        if check_version(connection, path) < SCHEMA_VERSION:
            raise StoreError(
                f"store `{path}` is of an older version; `proctor runs` brings it up to date", kind="older_schema"
            )
        yield connection
    finally:
        connection.close()


def _records(connection: sqlite3.Connection) -> Iterator[StoredRecord]:
    for row in connection.execute(_RECORDS):
        position, session_id, seq, run_id, event_id, type, at, data, digest = row
        record = data if isinstance(data, bytes) else str(data).encode()
        yield StoredRecord(position, session_id, seq, run_id, event_id, type, at, record, digest)


def _one(connection: sqlite3.Connection, sql: str, default: Any) -> Any:
    row = connection.execute(sql).fetchone()
    return default if row is None else row[0]
