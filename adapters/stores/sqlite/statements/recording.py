"""What one transaction writes: events with their seq, and the lines of sessions and runs that follow."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from proctor.policies.stream.events import TERMINAL, ApprovalEvent, Event, RecordPruned, SessionEvent, at_ms
from proctor.supervisor.errors import StoreError
from proctor.supervisor.ports.facts import GOING_ON, ApprovalAnswer, RunInfo, RunStatus, StoredApproval
from proctor.supervisor.store import chain, refusals
from proctor.supervisor.store.codec import from_record, status_after

from ..schema.tables import pragma
from . import desk
from .owners import find_owner
from .rows import Batch, Rows
from .run_lines import owner_columns

T = TypeVar("T")

_MOST_REMEMBERED = 100_000
_encode = msgspec.json.Encoder().encode


class _Session:
    __slots__ = ("head", "key", "last_seq", "provider", "provider_session_id")

    def __init__(
        self, key: int, last_seq: int, head: bytes, provider: str = "", provider_session_id: str | None = None
    ) -> None:
        self.key = key  # 0: not stored yet
        self.last_seq = last_seq
        self.head = head  # the digest of its latest record
        self.provider = provider
        self.provider_session_id = provider_session_id


class StaleError(Exception):
    """Another connection has written since what is remembered was read: the transaction is to be done again."""


class Recorder:
    """Writes one transaction after another, each begun by what needs it and ended by `commit`.

    Events of known sessions and runs need none: their rows are written by one statement, which is one.

    INVARIANT: what is remembered of sessions and runs is what the file holds; `forget` after a rollback.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._sessions: dict[str, _Session] = {}
        self._runs: dict[str, tuple[str, str, int]] = {}
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

    def ask(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Ask something of the file and what is to be committed to it. Raises StaleError."""
        self.write_out()
        return query(self._connection)

    def write_out(self) -> None:
        """Write what was gathered, so that the transaction sees it. Raises StaleError."""
        self._begin_unless_begun()
        self._insert_rows()

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
                owner = self.ask(lambda connection: find_owner(connection, self._epoch(part.run_id)))  # noqa: B023
                raise refusals.fenced(part.run_id, owner)
        if look_up:
            return self._append_what_is_new(batch.events)
        return self._append(batch)

    def _append(self, batch: Batch) -> list[Event]:
        next_seq = {session_id: self._next_seq(session_id, batch) for session_id in batch.first_seq}
        if next_seq != batch.first_seq:
            batch = Batch(batch.events, next_seq)
        self._gather(batch)
        return batch.events

    def _next_seq(self, session_id: str, batch: Batch) -> int:
        session = self._session(session_id)
        if not session.last_seq:
            first = next(event for event in batch.events if event.session_id == session_id)
            if isinstance(first, RecordPruned) and first.seq > 0:  # what is pruned elsewhere
                session.head = chain.head_below(first, session.head)
                return first.seq
        return session.last_seq + 1

    def _append_what_is_new(self, events: Sequence[Event]) -> list[Event]:
        self.write_out()
        found: dict[tuple[str, str], Event] = {}
        fresh: list[Event] = []
        place: list[int | Event] = []
        numbers: dict[tuple[str, str], int] = {}
        for event in events:
            id = (event.session_id, event.event_id)
            if event.event_id and id not in numbers and id not in found and (stored := self._stored(event)):
                found[id] = stored
            if id in found or id in numbers:
                place.append(found[id] if id in found else numbers[id])
                continue
            if event.event_id:
                numbers[id] = len(fresh)
            place.append(len(fresh))
            fresh.append(event)
        new = self._append(Batch(fresh))
        return [new[item] if isinstance(item, int) else item for item in place]

    def check_new(self, run: RunInfo) -> None:
        """Raises StoreError for a run that has no ids, or whose id is taken."""
        if not run.run_id or not run.session_id:
            raise StoreError("a run needs a run_id and a session_id", kind="bad_record")
        if self._run(run.run_id) is not None:
            raise StoreError(f"run `{run.run_id}` exists already; choose another id", kind="run_exists")

    def create_run(self, run: RunInfo) -> None:
        """Register a run; StoreError(kind="run_exists") when there is one of this id."""
        self.check_new(run)
        try:
            self._insert_run(run)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise StoreError(f"run `{run.run_id}` cannot be stored: {error}", kind="bad_record") from error

    def answer(
        self, approval_id: str, given: ApprovalAnswer, at: datetime, batch: Batch | None = None
    ) -> StoredApproval:
        """Take an answer, as an instruction or, with a batch, as the event in it; see `Store.answer`."""
        self.write_out()
        answered = desk.answer(self.execute, approval_id, given, at, instruct=batch is None)
        if batch is not None:
            self.append(batch, look_up=False)
        return answered

    def state_of(self, session_id: str) -> tuple[int, int, bytes]:
        """A session's key, its last seq and its head, with what was gathered. Raises StaleError."""
        self.write_out()
        session = self._session(session_id)
        return session.key, session.last_seq, session.head

    def forget_run(self, run_id: str) -> None:
        """The line of a run was changed: it is read again when it is needed."""
        self._runs.pop(run_id, None)

    def _gather(self, batch: Batch) -> None:
        for part in batch.parts:
            for event in part.news:
                session = self._noted(event)
            digests = chain.links(session.head, part.records)
            session.last_seq, session.head = part.seq + len(digests) - 1, digests[-1]
            self._rows.add(session.key, part, digests)

    def _noted(self, event: Event) -> _Session:
        """The session of an event, after its line and that of its run have followed from it."""
        session = self._session(event.session_id)
        if not session.key or not session.provider or isinstance(event, SessionEvent):
            self._note_session(event, session)
        if event.run_id:
            run = self._runs.get(event.run_id)
            if run is None or run[0] != status_after(event) or not run[1]:
                self._note_run(event)
        if isinstance(event, ApprovalEvent):
            desk.note(self.execute, event, session.key)
        elif isinstance(event, TERMINAL):
            desk.withdraw(self.execute, event)
        return session

    def _stored(self, event: Event) -> Event | None:
        row = self.execute(
            "SELECT seq, data FROM events WHERE session_key = ? AND event_id = ?",
            (self._session(event.session_id).key, event.event_id),
        ).fetchone()
        return row and from_record(row[1], session_id=event.session_id, seq=row[0])

    def _session(self, session_id: str) -> _Session:
        session = self._sessions.get(session_id)
        if session is None:
            row = self.execute(
                "SELECT key, seq, digest, sessions.provider, provider_session_id"
                " FROM sessions LEFT JOIN events ON session_key = key WHERE session_id = ? ORDER BY seq DESC LIMIT 1",
                (session_id,),
            ).fetchone()
            key, last_seq, head, *more = row or (0, None, None)
            session = _Session(key, last_seq or 0, head or chain.root(session_id), *more)
            self._sessions[session_id] = session
        return session

    def _note_session(self, event: Event, session: _Session) -> None:
        if not session.key:
            self._insert_session(event.session_id, session)
        found = event.provider_session_id if isinstance(event, SessionEvent) else None
        if (event.provider and not session.provider) or (found and found != session.provider_session_id):
            session.provider = session.provider or event.provider
            session.provider_session_id = found or session.provider_session_id
            self.execute(
                "UPDATE sessions SET provider = ?, provider_session_id = ? WHERE key = ?",
                (session.provider, session.provider_session_id, session.key),
            )

    def _insert_session(self, session_id: str, session: _Session) -> None:
        cursor = self.execute("INSERT INTO sessions (session_id) VALUES (?)", (session_id,))
        session.key = int(cursor.lastrowid or 0)

    def _epoch(self, run_id: str) -> int:
        run = self._run(run_id)
        return 0 if run is None else run[2]

    def _run(self, run_id: str) -> tuple[str, str, int] | None:
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
            new = RunInfo(run_id=event.run_id, session_id=event.session_id, created_at=event.at)
            self._insert_run(new)
            run = (new.status, new.provider, 0)
        status, provider, epoch = run
        if status not in GOING_ON:
            return
        status_now: RunStatus = status_after(event)
        if status_now != status or (event.provider and not provider):
            self._runs[event.run_id] = (status_now, provider or event.provider, epoch)
            self.execute(
                "UPDATE runs SET status = ?, provider = ? WHERE run_id = ?",
                (status_now, provider or event.provider, event.run_id),
            )

    def _insert_run(self, run: RunInfo) -> None:
        spec = _encode(run.spec)
        session = self._session(run.session_id)
        if not session.key:
            self._insert_session(run.session_id, session)
        tenant, labels = owner_columns(run.spec)
        at = run.created_at
        row = (run.run_id, session.key, run.provider, run.status, at and at.isoformat(), at and at_ms(at), spec)
        self.execute(
            "INSERT INTO runs (run_id, session_key, provider, status, created_at, created_ms, spec, tenant, labels,"
            " after) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?,"
            " coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'instructions'), 0))",
            (*row, tenant, labels),
        )
        self._runs[run.run_id] = (run.status, run.provider, 0)
