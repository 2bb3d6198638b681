"""A store's file, read in one moment and never written."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from proctor.supervisor.errors import UsageError

from ..sqlite.file import Connection, connect, store_error
from ..sqlite.schema import check_version
from ..tables.queries import every_run, to_run
from .sources import (
    APPROVALS,
    BLOCKS,
    IN_FLIGHT,
    ORDERS,
    RECORDS,
    SESSIONS,
    AuditSource,
    approvals_of,
    changed,
    check_current,
    runs_of,
)
from .verify import StoredRecord

_BUSY_S = 10.0
_PLANTED = "SELECT type, name FROM sqlite_master WHERE type IN ('view', 'trigger')"


@contextmanager
def reading_file(named: str | os.PathLike[str]) -> Iterator[AuditSource]:
    """Read a file for an audit. Raises StoreError if it cannot be read, UsageError if there is none."""
    path = Path(named)
    try:
        with _connected(path) as connection:
            yield AuditSource(
                store_id=_one(connection, "SELECT store_id FROM store", ""),
                stored=_counted(connection, "events"),
                records=_records(connection),
                runs=runs_of(connection.execute(every_run(connection.dialect)), partial(to_run, connection.dialect)),
                in_flight=connection.execute(IN_FLIGHT),
                approvals=approvals_of(connection.execute(APPROVALS)),
                sessions=connection.execute(SESSIONS),
                orders=((number, _bytes(data)) for number, data in connection.execute(ORDERS)),
                ordered=_counted(connection, "instructions"),
                blocks=connection.execute(BLOCKS),
                planted=connection.execute(_PLANTED),
                changed=changed(connection),
            )
    except sqlite3.Error as error:
        raise store_error(error, path) from error


@contextmanager
def _connected(path: Path) -> Iterator[Connection]:
    if not path.is_file():
        raise UsageError(f"there is no store at `{path}`; `--store` names another")
    connection = connect(path, "ro", busy_timeout_s=_BUSY_S)
    connection.text_factory = lambda text: text.decode("utf-8", "backslashreplace")
    try:
        connection.execute("BEGIN")  # others may write meanwhile: this is one moment
        check_current(check_version(connection, path), str(path))
        yield connection
    finally:
        connection.close()


def _counted(connection: sqlite3.Connection, table: str) -> int:
    """How many numbers a table has given; 0 where that is not one."""
    found = _one(connection, f"SELECT seq FROM sqlite_sequence WHERE name = '{table}'", 0)
    return found if isinstance(found, int) else 0


def _records(connection: sqlite3.Connection) -> Iterator[StoredRecord]:
    """Every record; a value of another type than it was written with is none that fits."""
    for row in connection.execute(RECORDS):
        position, session_id, seq, run_id, event_id, type, at, data, digest = row
        number = seq if isinstance(seq, int) else 0
        link = digest if isinstance(digest, bytes) else b""
        yield StoredRecord(position, session_id, number, run_id, event_id, type, at, _bytes(data), link)


def _bytes(data: Any) -> bytes:
    return data if isinstance(data, bytes) else str(data).encode()


def _one(connection: sqlite3.Connection, sql: str, default: Any) -> Any:
    row = connection.execute(sql).fetchone()
    return default if row is None else row[0]
