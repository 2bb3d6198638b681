"""What one transaction writes: events with their seq, and the rows of sessions, runs and approvals that follow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import msgspec

from proctor.policies.stream.events import TERMINAL, ApprovalEvent, Event, RunCancelled, ToolApprovalRequested
from proctor.supervisor.errors import StoreError
from proctor.supervisor.ports.facts import GOING_ON, ApprovalAnswer, RunInfo
from proctor.supervisor.ports.orders import Instruction
from proctor.supervisor.store import refusals
from proctor.supervisor.store.admission import CallsInFlight, stored_before
from proctor.supervisor.store.approvals import asks, state_after
from proctor.supervisor.store.codec import from_record, status_after

from .asking import WAITING, Dialect
from .batch import Batch, Gathered
from .owners import find_owner
from .row_state import KnownRun, KnownSession, run_after

_encode = msgspec.json.Encoder().encode


class Transaction(ABC):
    """What is written as one unit. A database of its own says how it is held, sent and committed."""

    dialect: ClassVar[Dialect]
    _rows: Gathered
    _runs: dict[str, KnownRun]

    @abstractmethod
    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """The rows that a statement gives, within the transaction."""

    @abstractmethod
    def change(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Write something now; the rows that this gives."""

    @abstractmethod
    def write(
        self, sql: str, values: Sequence[Any] = (), *, in_order: bool = False, runs: Sequence[str] = ()
    ) -> None:
        """Have something written by the end; `in_order`, after the events and by nobody else at the same time. `runs`
        are those whose rows it changes.
        """

    @abstractmethod
    def hold(self, session_ids: Iterable[str] = (), run_ids: Iterable[str] = (), *, make: bool = True) -> None:
        """Have these sessions and runs to itself, as they are now; with `make`, sessions that are not there are
        made.
        """

    @abstractmethod
    def hold_budgets(self) -> None:
        """Have all budgets to itself, as they are now."""

    @abstractmethod
    def session(self, session_id: str) -> KnownSession | None:
        """A session that it has, None where it is not there."""

    @abstractmethod
    def instruct(self, instruction: Instruction) -> None:
        """Have an instruction written."""

    @abstractmethod
    def instructed(self) -> int:
        """The number of the instruction that it writes; it writes nothing more."""

    @property
    @abstractmethod
    def last_instruction(self) -> int:
        """The number of the latest instruction when it began."""

    def append(self, batch: Batch, *, look_up: bool, epoch: int = 0) -> list[Event]:
        """Gather the rows of events; returns the events as they will be stored. `look_up` finds those that are
        stored already; without it a repeated event_id breaks the commit. A unit of a run that is stored already is
        not stored again. Raises StoreError, having gathered none, for events of a run that `epoch` has not claimed,
        or that does not admit them.
        """
        for part in batch.parts:
            owner = self._epoch(part.run_id) if part.run_id else epoch
            if owner != epoch:
                raise refusals.fenced(part.run_id, find_owner(self, owner))
        if batch.unit_start and batch.unit_start <= self._session(batch.events[0].session_id).last_seq:
            return self._append_rest(batch, epoch)
        if not look_up:
            try:
                return self._append(batch)
            except StoreError:  # what is not admitted may be stored already
                pass
        return self._append_new(batch.events)

    def check_new(self, run: RunInfo) -> None:
        """Raises StoreError for a run that has no ids, or whose id is taken."""
        if not run.run_id or not run.session_id:
            raise StoreError("a run needs a run_id and a session_id", kind="bad_record")
        if self._run(run.run_id) is not None:
            raise StoreError(f"run `{run.run_id}` exists already; choose another id", kind="run_exists")

    def insert_run(self, run: RunInfo, epoch: int = 0) -> None:
        """Have a new run written, claimed by that epoch. Raises StoreError for what cannot be stored."""
        try:
            self._insert_run(run, epoch)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise StoreError(f"run `{run.run_id}` cannot be stored: {error}", kind="bad_record") from error
        self._runs[run.run_id] = (run.status, run.provider, epoch, "")

    @abstractmethod
    def _session(self, session_id: str) -> KnownSession:
        """A session that events are appended to."""

    @abstractmethod
    def _run(self, run_id: str) -> KnownRun | None:
        """A run, None where it is not there."""

    @abstractmethod
    def _insert_run(self, run: RunInfo, epoch: int) -> None:
        """Have its row written."""

    @abstractmethod
    def _follow(self, sql: str, values: Sequence[Any], *, in_order: bool = False) -> None:
        """Have a row follow from an event; `in_order` as of `write`."""

    @abstractmethod
    def _request(self, event: ToolApprovalRequested, session: KnownSession) -> None:
        """Have the row of an approval written, with where its request stands among the events."""

    @abstractmethod
    def _append_new(self, events: Sequence[Event]) -> list[Event]:
        """Append those that are not stored yet; returns all as they are stored."""

    def _epoch(self, run_id: str) -> int:
        run = self._run(run_id)
        return 0 if run is None else run[2]

    def _append_rest(self, batch: Batch, epoch: int) -> list[Event]:
        """Append what of a unit is not stored yet; returns all as they are stored."""
        first = batch.events[0]
        sql = "SELECT seq, data FROM events WHERE session_key = ? AND seq >= ? AND run_id = ? ORDER BY seq"
        rows = self.rows(sql, (self._session(first.session_id).key, batch.unit_start, first.run_id))
        rows += self._rows.of_run(first.run_id, batch.unit_start)
        records = (from_record(data, session_id=first.session_id, seq=seq) for seq, data in rows)
        again = stored_before(batch.events, records, epoch=epoch)
        fresh = [event for event, stored in zip(batch.events, again, strict=True) if stored is None]
        new = iter(self._append_new(fresh) if fresh else ())
        return [stored or next(new) for stored in again]

    def _admit(self, batch: Batch) -> None:
        """Raises StoreError for what comes after a run's end, and for a second start of a call."""
        calls: dict[str, CallsInFlight] = {}
        for part in batch.parts:
            run = self._run(part.run_id) if part.run_id else None
            if run is not None and run[0] not in GOING_ON and not part.answers:
                raise refusals.run_over(part.run_id, run[0])
            if part.behind is not None:
                raise refusals.run_over(part.run_id, status_after(part.behind))
            if part.calls and part.run_id:
                in_flight = calls.setdefault(part.run_id, CallsInFlight("" if run is None else run[3]))
                for event in part.calls:
                    in_flight.observe(event)
                part.tallied().in_flight = in_flight.text

    def _append(self, batch: Batch) -> list[Event]:
        next_seq = {id: self._session(id).next_seq(id, batch.events) for id in batch.first_seq}
        if next_seq != batch.first_seq:
            batch = Batch(batch.events, next_seq)
        self._admit(batch)
        for part in batch.parts:
            session = self._session(part.session_id)
            for event in part.news:
                self._note(event, session)
            if part.tally is not None and part.tally.in_flight is not None:
                self._runs[part.run_id] = (*self._runs[part.run_id][:3], part.tally.in_flight)
            self._rows.add(session.key, part, session.link(part.seq, part.records))
        return batch.events

    def _note(self, event: Event, session: KnownSession) -> None:
        """Let the rows of an event's session, run and approvals follow from it."""
        if session.learn(event):
            sql = "UPDATE sessions SET provider = ?, provider_session_id = ? WHERE key = ?"
            self._follow(sql, (session.provider, session.provider_session_id, session.key))
        if event.run_id:
            self._note_run(event)
        if isinstance(event, ApprovalEvent):
            if asks(event):
                self._request(event, session)
            elif not isinstance(event, ToolApprovalRequested):
                self._close(event)
        elif isinstance(event, TERMINAL):
            self._withdraw(event)

    def _note_run(self, event: Event) -> None:
        run = self._run(event.run_id)
        if run is None:
            self.insert_run(RunInfo(run_id=event.run_id, session_id=event.session_id, created_at=event.at))
            run = self._runs[event.run_id]
        after = run_after(run, event)
        if after is not None:
            self._runs[event.run_id] = after
            self._follow("UPDATE runs SET status = ?, provider = ? WHERE run_id = ?", (*after[:2], event.run_id))

    def _close(self, event: ApprovalEvent) -> None:
        """The answer that an approval took before stands where the event repeats it; see `closed`."""
        state, answer = state_after(event), "NULL"
        values: tuple[Any, ...] = ()
        if event.by is not None:
            answer = "CASE WHEN answer IS NULL OR state != ? THEN ? ELSE answer END"
            given = ApprovalAnswer(granted=state == "granted", by=event.by, reason=event.reason)
            values = (state, _encode(given))
        columns = f"answer = {answer}, state = ?, answered_at = ?, recorded = true"
        values = (*values, state, _text(event), event.approval_id)
        self._follow(f"UPDATE approvals SET {columns} WHERE approval_id = ?", values, in_order=True)

    def _withdraw(self, end: Event) -> None:
        """The run is over: nobody needs to answer what it asked, unless it was ended to ask (see `outlives`)."""
        unless = " AND held" if isinstance(end, RunCancelled) else ""
        sql = "UPDATE approvals SET state = 'withdrawn', answered_at = ?, recorded = true WHERE run_id = ?"
        self._follow(f"{sql} AND {WAITING}{unless}", (_text(end), end.run_id), in_order=True)


def _text(event: Event) -> str | None:
    return None if event.at is None else event.at.isoformat()
