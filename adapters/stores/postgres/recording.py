"""Writes one transaction: events with their seq, and the rows of sessions and runs that follow.

It begins by locking and reading the rows of its sessions and runs, in one message; its writes are gathered, and sent
with the commit in another. It keeps nothing from one transaction to the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec
import psycopg
from psycopg.types.json import Jsonb

from proctor.policies.events import Event
from proctor.policies.events.run_context import FIGURES
from proctor.supervisor.errors import StoreError
from proctor.supervisor.ports.stored_types import Command, RunInfo, StoreSize
from proctor.supervisor.store.records import SIZE, append_new, from_record, ms_of, owners, root

from ..tables import recording
from ..tables.batches import Batch, Gathered, Inserted, PartRows
from ..tables.recording import FIGURED, IN_FLIGHT, RUN_COLUMNS, KnownRun, KnownSession, Transaction, run_columns
from ..tables.schema import check_version
from ..tables.seals import COMMANDED, NUMBERED, run_seal
from .connection import POSTGRES, Connection, ServerLink, kept, one_label, with_places

LOCK_LOG = "SELECT pg_advisory_xact_lock(1886548852, 'store'::regclass::oid::int4)"
"""Rows that need a position in the log of a store are written after this, and committed with it in one message: so
the order of positions is the order of commits, and a client that goes away cannot block the others.
"""
_MOST_BYTES = 64 * 1024 * 1024
"""How many bytes of events go into one statement, unless a single part has more."""
_MOST_ID_BYTES = 500
_encode = msgspec.json.Encoder().encode


# The SELECT of the highest position is right as whoever inserts has the order of the store to itself.
_INSERT = f"""INSERT INTO events (position, session_key, seq, run_id, event_id, type, at, data, digest)
    SELECT (SELECT coalesce(max(position), 0) FROM events) + (part.value->>5)::bigint + row.n,
        (part.value->>0)::bigint, (part.value->>1)::bigint + row.n - 1, part.value->>2,
        row.value->>0, row.value->>1, (row.value->>2)::bigint,
        substr(%s::bytea, (part.value->>3)::int + (row.value->>3)::int, (row.value->>4)::int),
        substr(%s::bytea, ((part.value->>5)::int + row.n::int - 1) * {SIZE} + 1, {SIZE})
    FROM jsonb_array_elements(%s) AS part, jsonb_array_elements(part.value->4) WITH ORDINALITY AS row (value, n)"""
_START = """UPDATE runs SET started_seq = %s, started_ms = %s, tenant = coalesce(tenant, %s),
    labels = coalesce(labels, %s), label_texts = CASE WHEN labels IS NULL THEN %s::text[] ELSE label_texts END
    WHERE run_id = %s AND started_seq IS NULL"""
_PLACES = ("line->>0", *(f"(line->>{n})::float8" for n in range(1, 3 + 2 * len(FIGURES))))
_TEXTS = tuple(f"line->>{n}" for n in range(2))
_FIGURES = tuple(
    (
        change,
        f"UPDATE runs SET {change.sets.format(*places, greater='greatest')}"
        f" FROM jsonb_array_elements(%s) AS line WHERE run_id = line->>0 AND {change.where}",
    )
    for change, places in (*((change, _PLACES) for change in FIGURED), (IN_FLIGHT, _TEXTS))
)


class Rows(Gathered):
    """The rows of one transaction."""

    def insert(self, connection: Connection) -> None:
        """Insert all rows; the transaction must hold the lock of `LOCK_LOG`."""
        several: list[Inserted] = []
        size = 0
        for part in self._parts:
            weight = sum(map(len, part[1].records))
            if several and size + weight > _MOST_BYTES:
                connection.execute(_INSERT, _values(several))
                several, size = [], 0
            several.append(part)
            size += weight
        if several:
            connection.execute(_INSERT, _values(several))
        self._change_runs(connection)

    def _change_runs(self, connection: Connection) -> None:
        for run_id, delta in self._deltas.items():
            if delta.started is not None:
                start = (delta.started.seq, ms_of(delta.started), *owner_columns(delta.started.metadata), run_id)
                connection.execute(_START, start)
        for change, sql in _FIGURES:
            rows = [(kept(run_id), *row) for run_id, delta in self._deltas.items() if (row := change.row(delta))]
            if rows:
                connection.execute(sql, (Jsonb(rows, _encode),))


def _values(parts: list[Inserted]) -> tuple[Any, ...]:
    """The bytes of all records and of their digests, and each part's offset among them, with its columns."""
    heads: list[tuple[Any, ...]] = []
    data = count = 0
    for key, part, rows, _ in parts:
        heads.append((key, part.seq, kept(part.run_id), data, _columns(rows), count))
        *_, offset, length = rows.columns[-1]
        data += offset - 1 + length
        count += len(rows.columns)
    records = b"".join([record for _, part, _, _ in parts for record in part.records])
    digests = b"".join([digest for *_, made in parts for digest in made])
    return records, digests, Jsonb(heads, _encode)


def _columns(rows: PartRows) -> msgspec.Raw:
    if b"\\" not in rows.encoded and not any(columns[0] for columns in rows.columns):
        return msgspec.Raw(rows.encoded)
    stored = [(id and kept(short_id(id)), kept(type), *more) for id, type, *more in rows.columns]
    return msgspec.Raw(_encode(stored))


def short_id(event_id: str) -> str:
    """An event's id as an index holds it, of bounded length."""
    data = event_id.encode("utf-8", "surrogatepass")
    return event_id if len(data) <= _MOST_ID_BYTES else f"sha256:{sha256(data).hexdigest()}"


def owner_columns(spec: Mapping[str, Any]) -> tuple[str | None, bytes | None, list[str]]:
    """The tenant, the labels as JSON, and each label as one text for the index."""
    tenant, labels = owners(spec)
    return tenant, _encode(labels) if labels else None, [one_label(*label) for label in labels.items()]


_MAKE_SESSIONS = """INSERT INTO sessions (session_id) SELECT id FROM unnest(%s::text[]) AS id
    WHERE NOT EXISTS (SELECT FROM sessions WHERE session_id = id) ORDER BY id COLLATE "C" ON CONFLICT DO NOTHING"""
_LOCK_SESSIONS = "SELECT key FROM sessions WHERE session_id = ANY(%s) ORDER BY key FOR NO KEY UPDATE"


# A statement of its own sees what was committed while the one before waited for its locks.
_SESSIONS = """SELECT session_id, key, seq, digest, provider, provider_session_id FROM sessions LEFT JOIN LATERAL
    (SELECT seq, digest FROM events WHERE session_key = key ORDER BY seq DESC LIMIT 1) AS latest ON true
    WHERE session_id = ANY(%s)"""
_RUNS = """SELECT run_id, status, provider, epoch, calls_in_flight FROM runs WHERE run_id = ANY(%s) ORDER BY number
    FOR NO KEY UPDATE"""
_BEGUN = f"SELECT pg_current_xact_id()::text::bigint, ({POSTGRES.last_command}), (SELECT version FROM store)"
_COMMITTED = """INSERT INTO writers VALUES (%s, %s) ON CONFLICT (writer)
    DO UPDATE SET committed = excluded.committed, at = now()"""
_LOCK_BUDGETS = "SELECT pg_advisory_xact_lock(1886548853, 'budgets'::regclass::oid::int4)"
"""A reservation locks all budgets of the store until it commits: one order, so no deadlock."""
_KEPT = "INSERT INTO instructions SELECT coalesce(max(number), 0) + 1, %s FROM instructions"
_OF_THIS_TRANSACTION = "SELECT max(number) FROM instructions WHERE number > %s AND xmin = %s::text::xid"


class Recorder(Transaction):
    """Writes one transaction after another, each from `lock` to `commit`, or to `rollback`."""

    dialect = POSTGRES
    last_command = 0
    _rows: Rows

    def __init__(self, link: ServerLink) -> None:
        self._link = link
        self._number = 0
        self._forget()

    def _forget(self) -> None:
        self.xid = 0
        self._changed = False
        self._sessions: dict[str, KnownSession] = {}
        self._runs: dict[str, KnownRun] = {}
        self._rows = Rows()
        self._gathered: dict[tuple[str, str], Event] = {}
        self._before: list[tuple[str, Sequence[Any]]] = []
        self._after: list[tuple[str, Sequence[Any]]] = []

    def lock(self, session_ids: Iterable[str] = (), run_ids: Iterable[str] = (), *, make: bool = True) -> None:
        """Begin a transaction: lock and read these sessions' and runs' rows; with `make`, missing ones are made."""
        sessions, runs = sorted({*session_ids}), sorted({*run_ids} - {""})
        self._number += 1
        connection = self._link.connection
        with connection.pipeline():
            connection.execute("BEGIN")
            if sessions:
                if make:
                    connection.execute(_MAKE_SESSIONS, (sessions,))
                connection.execute(_LOCK_SESSIONS, (sessions,))
            runs_found = connection.execute(_RUNS, (runs,)) if runs else None
            sessions_found = connection.execute(_SESSIONS, (sessions,), binary=True) if sessions else None
            xid = connection.execute(_BEGUN)
        self.xid, self.last_command, version = xid.fetchone() or (0, 0, 0)
        check_version(version, self._link.name)  # a process of another version may have upgraded it
        if not make:
            self._sessions = {session_id: KnownSession(0, None, root(session_id)) for session_id in sessions}
        if sessions_found is not None:
            for session_id, key, seq, digest, *more in sessions_found:
                self._sessions[session_id] = KnownSession(key, seq, digest or root(session_id), *more)
        if runs_found is not None:
            self._runs = {run_id: tuple(row) for run_id, *row in runs_found}

    def lock_budgets(self) -> None:
        """Begin a transaction that has locked all budgets."""
        super().lock_budgets()
        self.change(_LOCK_BUDGETS)

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Run a query within the transaction, or before it."""
        return self._link.connection.rows(sql, values)

    def change(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Write something now, within the transaction; returns the rows."""
        self._changed = True
        return self.rows(sql, values)

    def write(
        self, sql: str, values: Sequence[Any] = (), *, in_order: bool = False, runs: Sequence[str] = ()
    ) -> None:
        """Queue a write for the commit; with `in_order`, after the events, while nobody else writes."""
        (self._after if in_order else self._before).append((with_places(sql), values))

    def commit(self) -> None:
        """Write what was gathered, and commit, in one message. Raises psycopg.Error if it was not committed."""
        if not self.xid:
            return
        connection = self._link.connection
        try:
            with connection.pipeline():
                self._send(connection)
        except psycopg.OperationalError as error:
            if error.sqlstate is not None or not self._was_committed():
                raise
        self._forget()

    def _send(self, connection: Connection) -> None:
        for statement in self._before:
            connection.execute(*statement)
        if self._rows or self._after:
            connection.execute(LOCK_LOG)
        self._rows.insert(connection)
        for statement in self._after:
            connection.execute(*statement)
        if self._changed or self._before or self._rows or self._after:
            connection.execute(_COMMITTED, (self._link.application, self._number))
            connection.execute("COMMIT")
        else:  # nothing was recorded: sessions that `begin` made are not kept either
            connection.execute("ROLLBACK")

    def rollback(self) -> None:
        """Roll the transaction back."""
        self._forget()
        try:
            connection = self._link.connection
            if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                connection.execute("ROLLBACK")
        except (psycopg.Error, StoreError):
            self._link.drop()

    def notify(self) -> None:
        """Notify listeners that something was stored. A notification may be lost."""
        self._link.connection.execute("SELECT pg_notify(current_schema(), %s)", (self._link.application,))

    def _was_committed(self) -> bool:
        """Whether a transaction was committed whose commit was sent and not answered."""
        self._link.drop()  # the next connection ends what the server still does for this one
        latest = self._stored_value("SELECT committed FROM writers WHERE writer = %s", (self._link.application,))
        return bool(latest == self._number)

    def _stored_value(self, sql: str, values: Sequence[Any]) -> Any:
        """Read one value after the commit, again if the connection is lost."""
        row = self._link.query(lambda connection: connection.execute(sql, values).fetchone())
        return row and row[0]

    def leave(self) -> None:
        """Remove this writer's row, as it writes nothing more."""
        if not self._link.is_open:
            return
        old = "DELETE FROM writers WHERE writer = %s OR at < now() - interval '7 days'"
        self._link.connection.execute(old, (self._link.application,))

    def session(self, session_id: str) -> KnownSession:
        """A session of those that the transaction began with."""
        return self._sessions[session_id]

    def _run(self, run_id: str) -> KnownRun | None:
        return self._runs.get(run_id)

    def _append_new(self, events: Sequence[Event]) -> list[Event]:
        stored = self._stored([event for event in events if event.event_id])

        def stored_as(event: Event) -> Event | None:
            id = (event.session_id, event.event_id)
            return self._gathered.get(id) or stored.get(id)

        def append(fresh: Sequence[Event]) -> list[Event]:
            new = self._append(Batch(fresh))
            self._gathered.update({(event.session_id, event.event_id): event for event in new if event.event_id})
            return new

        return append_new(events, stored_as, append)

    def _stored(self, events: Sequence[Event]) -> dict[tuple[str, str], Event]:
        """The events that are stored already, by session and id."""
        if not events:
            return {}
        rows = self.rows(
            "SELECT sessions.session_id, wanted.event_id, seq, data"
            " FROM unnest(%s::text[], %s::text[], %s::text[]) AS wanted (session_id, event_id, short)"
            " JOIN sessions USING (session_id) JOIN events ON session_key = key AND events.event_id = wanted.short",
            (
                [event.session_id for event in events],
                [event.event_id for event in events],
                [short_id(event.event_id) for event in events],
            ),
        )
        return {(id, event_id): from_record(data, session_id=id, seq=seq) for id, event_id, seq, data in rows}

    def _insert_run(self, run: RunInfo, epoch: int) -> None:
        row = run_columns(run)
        seal = run_seal(run.run_id, run.session_id, (run.provider, *row[3:], self.last_command), epoch, 0)
        columns = (*row, self._sessions[run.session_id].key, *owner_columns(run.spec))
        self.write(
            f"INSERT INTO runs ({RUN_COLUMNS}, session_key, tenant, labels, label_texts, epoch, after, seal)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*columns, epoch, self.last_command, seal),
        )
        self.write(NUMBERED, (seal, run.run_id))

    def send_command(self, command: Command) -> None:
        """Queue a command."""
        self.write(_KEPT, (_encode(command),), in_order=True)
        self.write(COMMANDED, in_order=True)
        if (change := recording.blocks_change(command)) is not None:
            self.write(*change, in_order=True)

    def instructed(self) -> int:
        """Commit; returns the number of the command."""
        xid, before = self.xid, self.last_command
        self.commit()
        return int(self._stored_value(_OF_THIS_TRANSACTION, (before, str(xid % 2**32))))


_TABLES = ("events", "runs", "sessions", "approvals", "instructions", "owners", "blocks")


def vacuum(connection: Connection) -> None:
    """Free the space of removed rows for reuse, without blocking anybody."""
    with connection.unhurried():
        connection.execute(f"VACUUM {', '.join(_TABLES)}")


def size(connection: Connection) -> StoreSize:
    """See `Store.size`."""
    sizes = " + ".join(f"pg_total_relation_size('{table}')" for table in _TABLES)
    with connection.unhurried():
        [(sessions, events, taken)] = connection.execute(
            f"SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM events), {sizes}"
        ).fetchall()
    runs = dict(connection.execute("SELECT status, count(*) FROM runs GROUP BY status").fetchall())
    return StoreSize(sessions=sessions, runs=runs, events=events, bytes=int(taken))
