"""The rows that an audit reads from a store, whatever database it is in."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial, reduce
from itertools import chain
from operator import xor
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from proctor.supervisor.errors import StoreError, UsageError
from proctor.supervisor.ports.stored_types import RunInfo

from ..sqlite.file import Connection, check_version, connect, store_error
from ..tables.budgets import unsealed
from ..tables.queries import every_run, to_run
from ..tables.schema import NOTES, RUNS, schema_version
from ..tables.transactions import RUN, Tables, marks_of, note_mark, owner_row, row_digest, run_digest
from .list_checks import ListedApproval
from .verify import StoredRecord

RECORDS = (
    "SELECT position, coalesce(CAST(session_id AS TEXT), ''), seq, run_id, event_id, type, at, data, digest"
    " FROM events LEFT JOIN sessions ON key = session_key ORDER BY position"
)
APPROVALS = (
    "SELECT approval_id, coalesce(CAST(session_id AS TEXT), ''), approvals.seq, run_id, state, held, ran, answer,"
    " answered_at, recorded FROM approvals LEFT JOIN sessions ON key = session_key"
    " ORDER BY approvals.number"
)
ORDERS = "SELECT number, data FROM instructions ORDER BY number"
SESSIONS = "SELECT CAST(session_id AS TEXT), provider, provider_session_id FROM sessions"
IN_FLIGHT = "SELECT run_id, calls_in_flight FROM runs"
BLOCKS = "SELECT number, scope, value FROM blocks"
_ID = re.compile("[0-9a-f]{16}")
"""A store's id."""


class AuditSource(NamedTuple):
    """A store in one moment: its id, how many records were ever stored, those there are, its list of runs (of one
    whose row cannot be read the id), which calls of each are in flight, its list of approvals, its sessions with
    their provider and the agent's own id, its orders, how many it ever had, which of them block starts (and what
    each blocks), what it has that no version of this package makes, which of its other rows are not as they were
    written, in words, and the marks of the runs that were put into the list.
    """

    store_id: str
    stored: int
    records: Iterable[StoredRecord]
    runs: Iterable[RunInfo | str]
    in_flight: Iterable[tuple[str, str]]
    approvals: Iterable[ListedApproval]
    sessions: Iterable[tuple[str, str, str | None]]
    orders: Iterable[tuple[int, bytes]]
    ordered: int
    blocks: Iterable[tuple[int, str, str]]
    planted: Iterable[tuple[str, str]]
    changed: Iterable[str]
    marked: int


def runs_of(rows: Iterable[tuple[Any, ...]], read: Callable[[tuple[Any, ...]], RunInfo]) -> Iterator[RunInfo | str]:
    """The runs of these rows."""
    for row in rows:
        try:
            run = read(row)
            yield run if isinstance(run.session_id, str) else str(row[0])
        except (TypeError, ValueError, OverflowError, msgspec.MsgspecError):
            yield str(row[0])


def approvals_of(rows: Iterable[tuple[Any, ...]]) -> Iterator[ListedApproval]:
    """The approvals of these rows."""
    return (ListedApproval(*row) for row in rows)


def changed(tables: Tables) -> Iterator[str]:
    """Changed rows that no event covers: runs as they were created, owners, budgets, the store itself."""
    lines = tables.rows("SELECT store_id FROM store")
    if len(lines) != 1 or not _ID.fullmatch(str(lines[0][0])):
        yield "the store has not the one id that every store is made with"
    columns = f"run_id, coalesce(CAST(session_id AS TEXT), ''), epoch, attempts, status, seal, {RUN}"
    for run_id, session_id, epoch, attempts, status, digest, *row in tables.rows(
        f"SELECT {columns} FROM runs LEFT JOIN sessions ON key = session_key"
    ):
        number, provider, *rest = row
        # One that nobody created, or for any provider, has that of its first event.
        given = [provider] if status == "created" else [provider, ""]
        made = [partial(run_digest, run_id, session_id, (number, one, *rest), epoch, attempts) for one in given]
        if not any(_fits(digest, one) for one in made):
            yield f"run `{run_id}` was created otherwise, or is another owner's, than the list has it"
    for digest, *row in tables.rows(f"SELECT seal, {owner_row(tables.dialect)} FROM owners"):
        if not _fits(digest, lambda: row_digest("owner", *row)):  # noqa: B023
            yield f"owner {row[0]} is another in the list than the one that registered, or its lease is"
    for run_id, epoch in tables.rows(
        "SELECT run_id, epoch FROM runs WHERE epoch != 0 AND epoch NOT IN (SELECT epoch FROM owners)"
    ):
        yield f"run `{run_id}` has an owner {epoch} that is not there"
    try:
        yield from unsealed(tables)
    except (TypeError, ValueError):
        yield "there are rows of budgets that cannot be read"


def check_current(version: int, name: str) -> None:
    """Raises StoreError for a store that is still to be brought up to date."""
    if version < schema_version():
        message = f"store `{name}` is of an older version; `proctor runs` brings it up to date"
        raise StoreError(message, kind="older_schema")


def _fits(digest: Any, made: Callable[[], bytes]) -> bool:
    try:
        return bool(bytes(digest) == made())
    except (TypeError, ValueError, msgspec.MsgspecError):
        return False


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
                changed=chain(changed(connection), _notes_changed(connection)),
                marked=marks_of(connection, RUNS),
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


def _notes_changed(connection: Connection) -> Iterator[str]:
    """What hooks keep beside sessions, where that is not what they have written."""
    rows = connection.execute("SELECT session_id, name, data FROM hook_notes")
    marks = (note_mark(session_id, name, _bytes(data)) for session_id, name, data in rows)
    if reduce(xor, marks, 0) != marks_of(connection, NOTES):
        yield "what hooks keep beside sessions was changed, or some of it is not there"


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
