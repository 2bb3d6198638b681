"""Writes one transaction: events with their seq, and the rows of sessions and runs that follow."""

import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from proctor.policies.events import Event
from proctor.policies.events.run_context import FIGURES
from proctor.supervisor.ports.processes import machine
from proctor.supervisor.ports.stored_types import Command, RunInfo, StoreSize
from proctor.supervisor.store.records import SIZE, RunDelta, append_new, from_record, ms_of, owners, root

from ..tables import recording
from ..tables.batches import Batch, Condition, Dialect, Gathered
from ..tables.recording import (
    FIGURED,
    IN_FLIGHT,
    RUN_COLUMNS,
    Change,
    KnownRun,
    KnownSession,
    Transaction,
    run_columns,
)
from ..tables.schema import COMMANDS, NOTES
from ..tables.seals import command_mark, marked, note_mark, run_digest

_encode = msgspec.json.Encoder().encode
_N = len(FIGURES)


def _start(delta: RunDelta) -> tuple[Any, ...] | None:
    event = delta.started
    return None if event is None else (event.seq, ms_of(event), *owner_columns(event.metadata))


STARTED = Change(
    "started_seq = {1}, started_ms = {2}, tenant = coalesce(tenant, {3}), labels = coalesce(labels, {4})",
    "started_seq IS NULL",
    _start,
)
CHANGES = (STARTED, *FIGURED, IN_FLIGHT)
COLUMNS = tuple(f"change_{n}" for n in range(len(CHANGES)))
"""The columns of the view that takes a batch; each has the rows of one kind of change, as JSON."""


def _of_many(change: Change, column: str) -> str:
    places = [f"json_extract(line.value, '$[{n}]')" for n in range(1 + 2 * _N)]
    sets = change.sets.format(*places, greater="max")
    return (
        f"UPDATE runs SET {sets} FROM json_each(new.{column}) AS line WHERE run_id = {places[0]} AND {change.where}"
    )


def _of_one(change: Change) -> str:
    places = [f"?{n + 1}" for n in range(1 + 2 * _N)]
    sets = change.sets.format(*places, greater="max")
    return f"UPDATE runs SET {sets} WHERE run_id = ?1 AND {change.where}"


UPDATES = ";\n".join(_of_many(change, column) for change, column in zip(CHANGES, COLUMNS, strict=True))
"""The statements of a trigger on that view."""


def changes(deltas: Mapping[str, RunDelta]) -> list[bytes]:
    """A value for each of `COLUMNS`."""
    return [_encode(_rows(change, deltas)) for change in CHANGES]


def apply_each(connection: sqlite3.Connection, deltas: Mapping[str, RunDelta]) -> None:
    """Make the same changes by separate statements."""
    for change in CHANGES:
        connection.executemany(_of_one(change), _rows(change, deltas))


def _rows(change: Change, deltas: Mapping[str, RunDelta]) -> list[tuple[Any, ...]]:
    rows: Iterable[tuple[str, tuple[Any, ...] | None]] = ((run_id, change.row(t)) for run_id, t in deltas.items())
    return [(run_id, *row) for run_id, row in rows if row is not None]


def owner_columns(spec: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """The tenant, and the labels as JSON."""
    tenant, labels = owners(spec)
    return tenant, _encode(labels).decode() if labels else None


_EVENT_COLUMNS = "events (session_key, seq, run_id, event_id, type, at, data, digest)"


# A view takes a whole batch, so that its events and what they change in the rows of runs are one statement.
_BATCH_COLUMNS = ("parts", "rows", "data", "digests", *COLUMNS)
_VIEW = f"CREATE TEMP VIEW batch AS SELECT {', '.join(f'NULL AS {name}' for name in _BATCH_COLUMNS)}"


# LIMIT: what it limits is computed once a part.
_TRIGGER = f"""CREATE TEMP TRIGGER batch_is_stored INSTEAD OF INSERT ON batch BEGIN
    INSERT INTO {_EVENT_COLUMNS}
    SELECT part.key, part.seq + row.key, part.run_id, json_extract(row.value, '$[0]'),
        json_extract(row.value, '$[1]'), json_extract(row.value, '$[2]'),
        substr(new.data, part.data + json_extract(row.value, '$[3]'), json_extract(row.value, '$[4]')),
        substr(new.digests, part.digests + row.key * {SIZE}, {SIZE})
    FROM (SELECT json_extract(value, '$[0]') AS key, json_extract(value, '$[1]') AS seq,
        json_extract(value, '$[2]') AS run_id, json_extract(value, '$[3]') AS data,
        json_extract(value, '$[6]') AS digests,
        CAST(substr(new.rows, json_extract(value, '$[4]'), json_extract(value, '$[5]')) AS TEXT) AS columns
        FROM json_each(new.parts) LIMIT -1) AS part, json_each(part.columns) AS row;
    {UPDATES}; END"""


# OR ROLLBACK: without it the statement keeps an undo log.
_LINES = ", ".join(f"?{n}" for n in range(6, 6 + len(COLUMNS)))
_INSERT = f"""INSERT OR ROLLBACK INTO batch SELECT ?1, ?2, ?3, ?4, {_LINES}
    WHERE (SELECT data_version FROM pragma_data_version) = ?5"""
_INSERT_ONE = f"INSERT OR ROLLBACK INTO {_EVENT_COLUMNS} VALUES (?,?,?,?,?,?,?,?)"
_MOST_BYTES = 64 * 1024 * 1024
_NUL = b"\\u0000"
"""SQLite's JSON functions cut text off at this character."""


class Rows(Gathered):
    """Inserts a transaction's rows through a view."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__()
        connection.execute(_VIEW)
        connection.execute(_TRIGGER)

    def insert(self, connection: sqlite3.Connection, data_version: int) -> bool:
        """Insert all, if no other connection has written since that version; False when none was inserted.

        Rows that do not fit one statement are not inserted either: see `insert_each`.
        """
        heads: list[tuple[int, int, str, int, int, int, int]] = []
        data = columns = count = 0
        for key, part, rows, _ in self._parts:
            heads.append((key, part.seq, part.run_id, data, columns + 1, len(rows.encoded), count * SIZE + 1))
            _, _, _, offset, length = rows.columns[-1]
            data += offset - 1 + length
            columns += len(rows.encoded)
            count += len(rows.columns)
        encoded = b"".join([rows.encoded for _, _, rows, _ in self._parts])
        parts = _encode(heads)
        lines = changes(self._deltas)
        if data > _MOST_BYTES or any(_NUL in json for json in (encoded, parts, *lines)):
            return False
        bytes = b"".join([record for _, part, _, _ in self._parts for record in part.records])
        digests = b"".join([digest for *_, made in self._parts for digest in made])
        before = connection.total_changes
        connection.execute(
            _INSERT, (parts.decode(), encoded, bytes, digests, data_version, *(line.decode() for line in lines))
        )
        return connection.total_changes >= before + count

    def insert_each(self, connection: sqlite3.Connection) -> None:
        """Insert the rows one by one, within a transaction."""
        for key, part, rows, digests in self._parts:
            each = zip(rows.columns, part.records, digests, strict=True)
            values = [
                (key, seq, part.run_id, event_id, type, at, record, digest)
                for seq, ((event_id, type, at, _, _), record, digest) in enumerate(each, part.seq)
            ]
            connection.executemany(_INSERT_ONE, values)
        apply_each(connection, self._deltas)


_LABEL = """(SELECT iif(type IN ('true', 'false', 'null'), type, CAST(atom AS TEXT))
    FROM json_each(labels) WHERE json_each.key = ?) = ?"""


def _is_over(until: float | None, where: str) -> bool:
    return until is None or until <= time.monotonic() or bool(where and _boot(where) != _boot(machine()))


def _boot(where: str) -> str:
    return where.partition("/")[0]


def _among(value: str, values: Sequence[Any]) -> Condition:
    return f"{value} IN (SELECT value FROM json_each(?))", _encode(values).decode()


def _begins(text: str, with_what: str) -> Condition:
    return f"substr({text}, 1, ?) = ?", len(with_what), with_what


def _labelled(labels: Mapping[str, str]) -> Iterator[Condition]:
    return ((_LABEL, name, text) for name, text in labels.items())


SQLITE = Dialect(
    until="until",
    is_over=_is_over,
    lease_end="?",
    lease=lambda length_s: time.monotonic() + length_s,
    among=_among,
    begins=_begins,
    labelled=_labelled,
    last_command="SELECT seq FROM sqlite_sequence WHERE name = 'instructions'",
    until_value="until",
    in_log="CROSS JOIN",  # the log is what is walked through, whatever else there is an index for
)

_MOST_REMEMBERED = 10_000


class StaleError(Exception):
    """Another connection has written since the cached rows were read: the transaction must run again."""


class Recorder(Transaction):
    """Writes one transaction after another, each begun when first needed and ended by `commit`.

    Events of known sessions and runs need none, as one statement writes their rows.

    INVARIANT: cached sessions and runs are those in the file; call `forget` after a rollback.
    """

    dialect = SQLITE
    _rows: Rows

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._sessions: dict[str, KnownSession] = {}
        self._runs: dict[str, KnownRun] = {}
        self._rows = Rows(connection)
        self._data_version = pragma(connection, "data_version")

    def begin(self) -> bool:
        """Begin a transaction; True when another connection has written since the last one."""
        self._connection.execute("BEGIN IMMEDIATE")
        return self.has_changed()

    def _begin_unless_begun(self) -> None:
        if not self._connection.in_transaction and self.begin():
            raise StaleError

    def execute(self, sql: str, values: Sequence[Any] | dict[str, Any]) -> sqlite3.Cursor:
        """Execute a statement in the transaction, which begins if needed. Raises StaleError."""
        self._begin_unless_begun()
        return self._connection.execute(sql, values)

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Query the file, including uncommitted writes. Raises StaleError."""
        self._begin_unless_begun()
        self._insert_rows()  # so that the transaction sees what was gathered
        return self._connection.execute(sql, values).fetchall()

    def write(
        self, sql: str, values: Sequence[Any] = (), *, in_order: bool = False, runs: Sequence[str] = ()
    ) -> None:
        """Write at once, as nobody else can, changing the rows of these runs. Raises StaleError."""
        self.execute(sql, values)
        for run_id in runs:
            self._runs.pop(run_id, None)

    def lock(self, session_ids: Iterable[str] = (), run_ids: Iterable[str] = (), *, make: bool = True) -> None:
        """Begin a transaction, which locks the whole file. Raises StaleError."""
        self._begin_unless_begun()

    def has_changed(self) -> bool:
        """Whether another connection has written since the last call."""
        version = pragma(self._connection, "data_version")
        if version == self._data_version:
            return False
        self._data_version = version
        self.forget()
        return True

    def forget(self) -> None:
        """Drop cached rows and unwritten changes."""
        self._sessions.clear()
        self._runs.clear()
        self._rows.clear()

    def commit(self) -> None:
        """Write what was gathered, and commit. Raises StaleError having written nothing."""
        self._insert_rows()
        if self._connection.in_transaction:
            self._connection.execute("COMMIT")
        if len(self._sessions) + len(self._runs) > _MOST_REMEMBERED:
            self.forget()

    def _insert_rows(self) -> None:
        rows = self._rows
        if rows and not rows.insert(self._connection, self._data_version):
            self._begin_unless_begun()
            rows.insert_each(self._connection)
        rows.clear()

    @property
    def last_command(self) -> int:
        """The number of the latest."""
        return recording.last_command(self)

    def send_command(self, command: Command) -> None:
        """Write a command. Raises StaleError."""
        data = _encode(command)
        number = self.execute("INSERT INTO instructions (data) VALUES (?)", (data,)).lastrowid or 0
        self.execute(*marked(COMMANDS, command_mark(number, data)))
        if (change := recording.blocks_change(command)) is not None:
            self.execute(*change)

    def instructed(self) -> int:
        """The number of the command written."""
        return self.last_command

    def remove_beside(self, session_id: str) -> None:
        """Remove what hooks keep beside a session. Raises StaleError."""
        notes = self.rows("SELECT name, data FROM hook_notes WHERE session_id = ?", (session_id,))
        self.execute(*marked(NOTES, *(note_mark(session_id, name, data) for name, data in notes)))
        self.execute("DELETE FROM hook_notes WHERE session_id = ?", (session_id,))

    def _append_new(self, events: Sequence[Event]) -> list[Event]:
        self._begin_unless_begun()
        self._insert_rows()
        return append_new(events, self._stored, lambda fresh: self._append(Batch(fresh)))

    def _note(self, event: Event, session: KnownSession) -> None:
        if not session.key:
            self._insert_session(event.session_id, session)
        super()._note(event, session)

    def _stored(self, event: Event) -> Event | None:
        row = self.execute(
            "SELECT seq, data FROM events WHERE session_key = ? AND event_id = ?",
            (self.session(event.session_id).key, event.event_id),
        ).fetchone()
        return row and from_record(row[1], session_id=event.session_id, seq=row[0])

    def session(self, session_id: str) -> KnownSession:
        """A session with what was gathered. Raises StaleError."""
        session = self._sessions.get(session_id)
        if session is None:
            row = self.execute(
                "SELECT key, seq, digest, sessions.provider, provider_session_id"
                " FROM sessions LEFT JOIN events ON session_key = key WHERE session_id = ? ORDER BY seq DESC LIMIT 1",
                (session_id,),
            ).fetchone()
            key, last_seq, head, *more = row or (0, None, None)
            session = KnownSession(key, last_seq, head or root(session_id), *more)
            self._sessions[session_id] = session
        return session

    def _insert_session(self, session_id: str, session: KnownSession) -> None:
        cursor = self.execute("INSERT INTO sessions (session_id) VALUES (?)", (session_id,))
        session.key = int(cursor.lastrowid or 0)

    def _run(self, run_id: str) -> KnownRun | None:
        run = self._runs.get(run_id)
        if run is None:
            sql = "SELECT status, provider, epoch, calls_in_flight FROM runs WHERE run_id = ?"
            run = self.execute(sql, (run_id,)).fetchone()
            if run is not None:
                self._runs[run_id] = run
        return run

    def _insert_run(self, run: RunInfo, epoch: int) -> None:
        row = run_columns(run)
        session = self.session(run.session_id)
        if not session.key:
            self._insert_session(run.session_id, session)
        tenant, labels = owner_columns(run.spec)
        after = self.last_command
        (number,) = self.execute("SELECT coalesce(max(number), 0) + 1 FROM runs", ()).fetchone()
        seal = run_digest(run.run_id, run.session_id, (number, run.provider, *row[3:], after), epoch, 0)
        self.execute(
            f"INSERT INTO runs ({RUN_COLUMNS}, session_key, tenant, labels, epoch, after, seal, number)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*row, session.key, tenant, labels, epoch, after, seal, number),
        )


STEP_PAGES = 1000
"""Pages freed at a time; others write in between."""


def free_pages(connection: sqlite3.Connection) -> bool:
    """Free some unused pages, outside of a transaction; returns whether there are more."""
    # `execute` would leave it after the first page: it yields rows of no columns, one a page.
    connection.executescript(f"PRAGMA incremental_vacuum({STEP_PAGES})")
    if pragma(connection, "freelist_count"):
        return True
    with suppress(sqlite3.OperationalError):  # somebody reads: whoever writes next does it
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return False


def size(connection: sqlite3.Connection) -> StoreSize:
    """See `Store.size`."""
    page_size = pragma(connection, "page_size")
    (sessions,) = connection.execute("SELECT count(*) FROM sessions").fetchone()
    (events,) = connection.execute("SELECT count(*) FROM events").fetchone()
    return StoreSize(
        sessions=sessions,
        runs=dict(connection.execute("SELECT status, count(*) FROM runs GROUP BY status").fetchall()),
        events=events,
        bytes=pragma(connection, "page_count") * page_size,
        free_bytes=pragma(connection, "freelist_count") * page_size,
    )


def pragma(connection: sqlite3.Connection, name: str) -> int:
    """The value of a numeric pragma."""
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
