"""Reads the rows of a store for an audit, from either database."""

import os
import sqlite3
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from proctor.supervisor.errors import StoreError, UsageError

from ..sqlite.file import Connection, check_version, connect, store_error
from ..tables import schema
from ..tables.batches import Tables, owner_row
from ..tables.budgets import marked_rows, orphans
from ..tables.seals import all_marks, command_mark, note_mark, owner_mark, row_digest, store_mark
from .list_checks import ListedApproval, ListedRun, fits
from .verify import StoredRecord

RECORDS = (
    "SELECT position, coalesce(CAST(session_id AS TEXT), ''), seq, run_id, event_id, type, at, data, digest"
    " FROM events LEFT JOIN sessions ON key = session_key ORDER BY position"
)
APPROVALS = (
    "SELECT approval_id, coalesce(CAST(session_id AS TEXT), ''), approvals.seq, run_id, state, held, ran, answer,"
    " answered_at, recorded FROM approvals LEFT JOIN sessions ON key = session_key"
)
COMMANDS = "SELECT number, data FROM instructions ORDER BY number"
SESSIONS = "SELECT CAST(session_id AS TEXT), provider, provider_session_id FROM sessions"
BLOCKS = "SELECT number, scope, value FROM blocks"


class AuditSource(NamedTuple):
    """A store at one moment: its id, how many records were ever stored, its records, the rows of its runs, approvals
    and sessions (with their provider and the agent's own id), its commands, those that block starts (and what each
    blocks), tables and the like that this package never makes, changed rows in words, and the marks of its seals.
    """

    store_id: str
    stored: int
    records: Iterable[StoredRecord]
    runs: Iterable[ListedRun]
    approvals: Iterable[ListedApproval]
    sessions: Iterable[tuple[str, str, str | None]]
    commands: Iterable[tuple[int, bytes]]
    blocks: Iterable[tuple[int, str, str]]
    planted: Iterable[tuple[str, str]]
    changed: Iterable[str]
    seals: dict[str, int]


def runs_of(tables: Tables, dialect: schema.SchemaDialect) -> Iterator[ListedRun]:
    """The rows of runs, by column, each with the id of its session."""
    names = [name for name in schema.columns("runs", dialect) if name != "session_key"]
    wanted = ", ".join(f"runs.{name}" for name in names)
    session = "coalesce(CAST(session_id AS TEXT), '')"
    sql = f"SELECT {session}, {wanted} FROM runs LEFT JOIN sessions ON key = session_key ORDER BY number"
    return (dict(zip(("session_id", *names), row, strict=True)) for row in tables.rows(sql))


def seals_of(tables: Tables) -> dict[str, int]:
    """The marks of each seal."""
    return dict(tables.rows("SELECT name, marks FROM seals"))


def source_of(
    tables: Tables,
    dialect: schema.SchemaDialect,
    *,
    stored: int,
    records: Iterable[StoredRecord],
    planted: Iterable[tuple[str, str]],
    changed: Iterable[str],
) -> AuditSource:
    """The rows of a store in either database; the rest is what each has of its own."""
    ids = tables.rows("SELECT store_id FROM store")
    return AuditSource(
        store_id=ids[0][0] if ids else "",
        stored=stored,
        records=records,
        runs=runs_of(tables, dialect),
        approvals=(ListedApproval(*row) for row in tables.rows(APPROVALS)),
        sessions=tables.rows(SESSIONS),
        commands=((number, as_bytes(data)) for number, data in tables.rows(COMMANDS)),
        blocks=tables.rows(BLOCKS),
        planted=planted,
        changed=changed,
        seals=seals_of(tables),
    )


def changed(tables: Tables, notes: Iterable[tuple[str, str, bytes]] = ()) -> Iterator[str]:
    """Changed rows that no event covers, except runs; `notes` are what hooks keep beside sessions."""
    ids = [str(row[0]) for row in tables.rows("SELECT store_id FROM store")]
    found = {schema.STORE: all_marks(map(store_mark, ids)) if len(ids) == 1 else None}
    owners = tables.rows(f"SELECT seal, {owner_row(tables.dialect)} FROM owners")
    for digest, *row in owners:
        if not fits(digest, lambda: row_digest("owner", *row)):  # noqa: B023
            yield f"owner {row[0]} is another in the list than the one that registered, or its lease is"
    found[schema.OWNERS] = all_marks(owner_mark(epoch) for _, epoch, *_ in owners)
    for run_id, epoch in tables.rows(
        "SELECT run_id, epoch FROM runs WHERE epoch != 0 AND epoch NOT IN (SELECT epoch FROM owners)"
    ):
        yield f"run `{run_id}` has an owner {epoch} that is not there"
    found[schema.COMMANDS] = all_marks(command_mark(number, as_bytes(data)) for number, data in tables.rows(COMMANDS))
    found[schema.NOTES] = all_marks(note_mark(session_id, name, as_bytes(data)) for session_id, name, data in notes)
    found[schema.BUDGETS] = yield from _budgets_changed(tables)
    seals = seals_of(tables)
    yield from (message for name, message in _UNSEALED.items() if seals.get(name) != found[name])
    if seals.keys() != {*schema.SEALS}:
        yield "the list of seals is not the one that a store is created with"


_UNSEALED = {
    schema.STORE: "the store does not have the id that it was created with",
    schema.OWNERS: "an owner is missing from the list, or was added to it by hand",
    schema.COMMANDS: "a command was changed, removed, or added by hand",
    schema.NOTES: "the state of hooks was changed, or part of it is missing",
    schema.BUDGETS: "the list of budgets was changed, or part of it is missing",
}


def _budgets_changed(tables: Tables) -> Generator[str, None, int | None]:
    """The same of budgets; returns the marks of all their rows."""
    whole = 0
    try:
        for claim, marks, own in marked_rows(tables):
            whole ^= own
            if marks != own:
                key = f" of `{claim.key}`" if claim.key else ""
                yield f"budget `{claim.budget}`{key} has rows that were changed, or some are missing"
        if orphans(tables):
            yield "rows of budgets are missing"
    except (TypeError, ValueError):
        yield "some rows of budgets cannot be read"
        return None
    return whole


def check_current(version: int, name: str) -> None:
    """Raises StoreError for a store that needs a migration."""
    if version < schema.schema_version():
        message = f"store `{name}` is of an older version; `proctor runs` brings it up to date"
        raise StoreError(message, kind="older_schema")


_BUSY_S = 10.0
_MADE = "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name != 'sqlite_sequence'"


@contextmanager
def reading_file(named: str | os.PathLike[str]) -> Iterator[AuditSource]:
    """Read a file for an audit. Raises StoreError if it cannot be read, UsageError if there is none."""
    path = Path(named)
    try:
        with _connected(path) as connection:
            yield source_of(
                connection,
                schema.SQLITE,
                stored=_counted(connection, "events"),
                records=_records(connection),
                planted=_planted(connection),
                changed=changed(connection, connection.rows("SELECT session_id, name, data FROM hook_notes")),
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
        if connection.sealed is not None:
            connection.sealed.check()
    finally:
        connection.close()


def _counted(connection: Connection, table: str) -> int:
    """How many numbers a table has given; 0 without a counter."""
    found = connection.rows("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,))
    return found[0][0] if found and isinstance(found[0][0], int) else 0


def _planted(connection: Connection) -> Iterator[tuple[str, str]]:
    """The kinds and names of what differs from a new store."""
    with closing(sqlite3.connect(":memory:")) as new:
        for statement in schema.statements(schema.SQLITE):
            new.execute(statement)
        made = set(map(_made, new.execute(_MADE)))
    found = set(map(_made, connection.execute(_MADE)))
    return ((kind, name) for kind, name, _ in sorted(found ^ made))


def _made(row: tuple[str, str, str]) -> tuple[str, str, tuple[str, ...]]:
    """What a store has, and the statement that made it, the columns of a table sorted: a migrated store has new ones
    last.
    """
    kind, name, statement = row
    if kind != "table":
        return kind, name, (statement,)
    begin, _, rest = statement.partition("(")
    columns, _, end = rest.rpartition(")")
    return kind, name, (begin, *sorted(column.strip() for column in columns.split(",")), end)


def _records(connection: sqlite3.Connection) -> Iterator[StoredRecord]:
    """Every record; a value of the wrong type makes a record that matches nothing."""
    for row in connection.execute(RECORDS):
        position, session_id, seq, run_id, event_id, type, at, data, digest = row
        number = seq if isinstance(seq, int) else 0
        link = digest if isinstance(digest, bytes) else b""
        yield StoredRecord(position, session_id, number, run_id, event_id, type, at, as_bytes(data), link)


def as_bytes(data: Any) -> bytes:
    """The value as bytes, also where somebody stored text."""
    return data if isinstance(data, bytes) else str(data).encode()
