"""What one transaction writes: events with their seq, and the lines of sessions and runs that follow."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from proctor.policies.stream.events import Event, ToolApprovalRequested
from proctor.supervisor.ports.facts import RunInfo
from proctor.supervisor.ports.orders import Block, Instruction, Lift
from proctor.supervisor.store import chain
from proctor.supervisor.store.codec import from_record

from ...tables import approvals_and_orders
from ...tables.batch import Batch
from ...tables.recording import Transaction
from ...tables.row_state import RUN_COLUMNS, KnownRun, KnownSession, append_new, run_columns
from ...tables.seals import run_digest
from ..schema.tables import pragma
from .dialect import SQLITE
from .rows import Rows
from .run_lines import owner_columns

_MOST_REMEMBERED = 100_000
_encode = msgspec.json.Encoder().encode


class StaleError(Exception):
    """Another connection has written since what is remembered was read: the transaction is to be done again."""


class Recorder(Transaction):
    """Writes one transaction after another, each begun by what needs it and ended by `commit`.

    Events of known sessions and runs need none: their rows are written by one statement, which is one.

    INVARIANT: what is remembered of sessions and runs is what the file holds; `forget` after a rollback.
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

    def session(self, session_id: str) -> KnownSession | None:
        """A session with what was gathered, None where it is not there. Raises StaleError."""
        session = self._session(session_id)
        return session if session.key else None

    @property
    def last_instruction(self) -> int:
        """The number of the latest."""
        return approvals_and_orders.last_instruction(self)

    def instruct(self, instruction: Instruction) -> None:
        """Write an instruction. Raises StaleError."""
        number = self.execute("INSERT INTO instructions (data) VALUES (?)", (_encode(instruction),)).lastrowid
        if isinstance(instruction, Block):
            self.execute("INSERT INTO blocks (number) VALUES (?)", (number,))
        elif isinstance(instruction, Lift):
            lifted = [(block.number,) for block in approvals_and_orders.blocks(self) if instruction.lifts(block)]
            self._connection.executemany("DELETE FROM blocks WHERE number = ?", lifted)

    def instructed(self) -> int:
        """The number of the instruction that was written."""
        return self.last_instruction

    def _append_new(self, events: Sequence[Event]) -> list[Event]:
        self._begin_unless_begun()
        self._insert_rows()
        return append_new(events, self._stored, lambda fresh: self._append(Batch(fresh)))

    def _note(self, event: Event, session: KnownSession) -> None:
        if not session.key:
            self._insert_session(event.session_id, session)
        super()._note(event, session)

    def _follow(self, sql: str, values: Sequence[Any], *, in_order: bool = False) -> None:
        self.execute(sql, values)

    def _request(self, event: ToolApprovalRequested, session: KnownSession) -> None:
        self.execute(
            "INSERT OR IGNORE INTO approvals (approval_id, session_key, seq, run_id, state, held, ran)"
            " VALUES (?, ?, ?, ?, 'requested', ?, ?)",
            (event.approval_id, session.key, event.seq, event.run_id, event.held, event.ran),
        )

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
        session = self._session(run.session_id)
        if not session.key:
            self._insert_session(run.session_id, session)
        tenant, labels = owner_columns(run.spec)
        after = self.last_instruction
        seal = run_digest(run.run_id, run.session_id, (*row[3:], after), epoch, 0)
        self.execute(
            f"INSERT INTO runs ({RUN_COLUMNS}, session_key, tenant, labels, epoch, after, seal)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*row, session.key, tenant, labels, epoch, after, seal),
        )
