"""What one transaction writes: events with their seq, and the lines of sessions and runs that follow."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from proctor.policies.stream.events import TERMINAL, ApprovalEvent, Event, SessionEvent
from proctor.supervisor.ports.facts import RunInfo
from proctor.supervisor.ports.orders import Instruction
from proctor.supervisor.store import chain, refusals
from proctor.supervisor.store.codec import from_record, status_after

from ... import row_changes
from ...row_changes import KnownRun, KnownSession
from ...tables import desk
from ...tables.batch import Batch
from ...tables.owners import find_owner
from ..schema.tables import pragma
from . import approval_rows
from .dialect import SQLITE
from .rows import Rows
from .run_lines import owner_columns

_MOST_REMEMBERED = 100_000


class StaleError(Exception):
    """Another connection has written since what is remembered was read: the transaction is to be done again."""


class Recorder:
    """Writes one transaction after another, each begun by what needs it and ended by `commit`.

    Events of known sessions and runs need none: their rows are written by one statement, which is one.

    INVARIANT: what is remembered of sessions and runs is what the file holds; `forget` after a rollback.
    """

    dialect = SQLITE

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._sessions: dict[str, KnownSession] = {}
        self._runs: dict[str, KnownRun] = {}
        self._rows = Rows(connection)
        self._data_version = pragma(connection, "data_version")

    def begin(self) -> bool:
        """Begin a transaction; True when another connection has written since the last one."""
        self._connection.execute("BEGIN IMMEDIATE")
        return self.look()

    def _begin_unless_begun(self) -> None:
        if not self._connection.in_transaction and self.begin():
            raise StaleError

    def execute(self, sql: str, values: Sequence[Any] | dict[str, Any]) -> sqlite3.Cursor:
        """Execute a statement in the transaction, which may have to be begun. Raises StaleError."""
        self._begin_unless_begun()
        return self._connection.execute(sql, values)

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Ask something of the file and what is to be committed to it. Raises StaleError."""
        self._begin_unless_begun()
        self._insert_rows()  # so that the transaction sees what was gathered
        return self._connection.execute(sql, values).fetchall()

    def change(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Write something, after what was gathered; the rows that this gives. Raises StaleError."""
        return self.rows(sql, values)

    def write(
        self, sql: str, values: Sequence[Any] = (), *, in_order: bool = False, runs: Sequence[str] = ()
    ) -> None:
        """Write something, after what was gathered, that changes the rows of these runs. Raises StaleError."""
        self.rows(sql, values)
        for run_id in runs:
            self._runs.pop(run_id, None)

    def hold(self, session_ids: Iterable[str] = (), run_ids: Iterable[str] = (), *, make: bool = True) -> None:
        """Begin; whoever writes has the whole file to itself. Raises StaleError."""
        self._begin_unless_begun()

    def hold_budgets(self) -> None:
        """As `hold` does."""
        self._begin_unless_begun()

    def look(self) -> bool:
        """True when another connection has written since the last look."""
        version = pragma(self._connection, "data_version")
        if version == self._data_version:
            return False
        self._data_version = version
        self.forget()
        return True

    def forget(self) -> None:
        """Drop what is remembered and what is not written yet."""
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

    def append(self, batch: Batch, *, look_up: bool, epoch: int = 0) -> list[Event]:
        """Gather the rows of events; returns the events as they will be stored. `look_up` finds those that are
        stored already; without it a repeated event_id is an IntegrityError at the commit. Raises StoreError, having
        gathered none, for events of a run that `epoch` has not claimed.
        """
        for part in batch.parts:
            if part.run_id and self._epoch(part.run_id) != epoch:
                raise refusals.fenced(part.run_id, find_owner(self, self._epoch(part.run_id)))
        if look_up:
            return self._append_what_is_new(batch.events)
        return self._append(batch)

    def _append(self, batch: Batch) -> list[Event]:
        next_seq = {id: self._session(id).next_seq(id, batch.events) for id in batch.first_seq}
        if next_seq != batch.first_seq:
            batch = Batch(batch.events, next_seq)
        self._gather(batch)
        return batch.events

    def _append_what_is_new(self, events: Sequence[Event]) -> list[Event]:
        self._begin_unless_begun()
        self._insert_rows()
        return row_changes.append_new(events, self._stored, lambda fresh: self._append(Batch(fresh)))

    def check_new(self, run: RunInfo) -> None:
        """Raises StoreError for a run that has no ids, or whose id is taken."""
        row_changes.check_new(run, lambda run_id: self._run(run_id) is not None)

    def insert_run(self, run: RunInfo, epoch: int = 0) -> None:
        """Insert the row of a new run, claimed by that epoch. Raises StoreError for what cannot be stored."""
        try:
            self._insert_run(run, epoch)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise row_changes.not_storable(run, error) from error

    def session(self, session_id: str) -> KnownSession | None:
        """A session with what was gathered, None where it is not there. Raises StaleError."""
        session = self._session(session_id)
        return session if session.key else None

    @property
    def last_instruction(self) -> int:
        """The number of the latest."""
        return desk.last_instruction(self)

    def instruct(self, instruction: Instruction) -> None:
        """Write an instruction. Raises StaleError."""
        approval_rows.keep(self.execute, instruction, lambda: desk.blocks(self))

    def instructed(self) -> int:
        """The number of the instruction that was written."""
        return self.last_instruction

    def _gather(self, batch: Batch) -> None:
        for part in batch.parts:
            for event in part.news:
                session = self._noted(event)
            digests = session.link(part.seq, part.records)
            self._rows.add(session.key, part, digests)

    def _noted(self, event: Event) -> KnownSession:
        """The session of an event, after its line and that of its run have followed from it."""
        session = self._session(event.session_id)
        if not session.key or not session.provider or isinstance(event, SessionEvent):
            self._note_session(event, session)
        if event.run_id:
            run = self._runs.get(event.run_id)
            if run is None or run[0] != status_after(event) or not run[1]:
                self._note_run(event)
        if isinstance(event, ApprovalEvent):
            approval_rows.note(self.execute, event, session.key)
        elif isinstance(event, TERMINAL):
            approval_rows.withdraw(self.execute, event)
        return session

    def _stored(self, event: Event) -> Event | None:
        row = self.execute(
            "SELECT seq, data FROM events WHERE session_key = ? AND event_id = ?",
            (self._session(event.session_id).key, event.event_id),
        ).fetchone()
        return row and from_record(row[1], session_id=event.session_id, seq=row[0])

    def _session(self, session_id: str) -> KnownSession:
        session = self._sessions.get(session_id)
        if session is None:
            row = self.execute(
                "SELECT key, seq, digest, sessions.provider, provider_session_id"
                " FROM sessions LEFT JOIN events ON session_key = key WHERE session_id = ? ORDER BY seq DESC LIMIT 1",
                (session_id,),
            ).fetchone()
            key, last_seq, head, *more = row or (0, None, None)
            session = KnownSession(key, last_seq, head or chain.root(session_id), *more)
            self._sessions[session_id] = session
        return session

    def _note_session(self, event: Event, session: KnownSession) -> None:
        if not session.key:
            self._insert_session(event.session_id, session)
        if session.learn(event):
            self.execute(
                "UPDATE sessions SET provider = ?, provider_session_id = ? WHERE key = ?",
                (session.provider, session.provider_session_id, session.key),
            )

    def _insert_session(self, session_id: str, session: KnownSession) -> None:
        cursor = self.execute("INSERT INTO sessions (session_id) VALUES (?)", (session_id,))
        session.key = int(cursor.lastrowid or 0)

    def _epoch(self, run_id: str) -> int:
        run = self._run(run_id)
        return 0 if run is None else run[2]

    def _run(self, run_id: str) -> KnownRun | None:
        run = self._runs.get(run_id)
        if run is None:
            sql = "SELECT status, provider, epoch FROM runs WHERE run_id = ?"
            run = self.execute(sql, (run_id,)).fetchone()
            if run is not None:
                self._runs[run_id] = run
        return run

    def _note_run(self, event: Event) -> None:
        run = self._run(event.run_id)
        if run is None:
            new = row_changes.run_of(event)
            self._insert_run(new, 0)
            run = (new.status, new.provider, 0)
        after = row_changes.run_after(run, event)
        if after is not None:
            self._runs[event.run_id] = after
            self.execute("UPDATE runs SET status = ?, provider = ? WHERE run_id = ?", (*after[:2], event.run_id))

    def _insert_run(self, run: RunInfo, epoch: int) -> None:
        row = row_changes.run_columns(run)
        session = self._session(run.session_id)
        if not session.key:
            self._insert_session(run.session_id, session)
        tenant, labels = owner_columns(run.spec)
        self.execute(
            f"INSERT INTO runs ({row_changes.RUN_COLUMNS}, session_key, tenant, labels, epoch, after)"
            f" VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, coalesce(({SQLITE.last_instruction}), 0))",
            (*row, session.key, tenant, labels, epoch),
        )
        self._runs[run.run_id] = (run.status, run.provider, epoch)
