"""Writes one transaction: events with their seq, and the rows of sessions, runs and approvals that follow."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from proctor.policies import events as ev
from proctor.policies.events.calls import ToolCall
from proctor.policies.events.run_context import FIGURES
from proctor.policies.values.json_values import NOT_JSON, json_words
from proctor.supervisor.errors import StoreError
from proctor.supervisor.ports.stored_types import (
    NOBODY_IN_TIME,
    AnswerGiven,
    ApprovalAnswer,
    ApprovalRequest,
    Block,
    Command,
    RunInfo,
    RunStatus,
    StoredApproval,
    UnblockStarts,
)
from proctor.supervisor.store import invariants
from proctor.supervisor.store.invariants import asks, check_answerable, no_approval, shown, state_after
from proctor.supervisor.store.records import (
    COUNTERS,
    RunDelta,
    admit,
    append_rest,
    from_record,
    head_below,
    links,
    ms_of,
    run_after,
    session_after,
)

from .batches import Batch, Condition, Dialect, Gathered, Tables, all_of, find_owner
from .schema import RUNS, WAITING
from .seals import marked, run_mark

RUN_COLUMNS: Final = "run_id, provider, status, created_at, created_ms, spec"
"""The columns of a run's row in every database, see `run_columns`."""
KnownRun: TypeAlias = tuple[RunStatus, str, int, str]
"""Of a run: its status, its provider, the epoch of its owner, and its calls in flight."""
_encode = msgspec.json.Encoder().encode


class KnownSession:
    """A session in a transaction: `head` is the digest of its latest record, `key` its row's key, 0 until stored."""

    __slots__ = ("head", "key", "last_seq", "provider", "provider_session_id")

    def __init__(
        self, key: int, last_seq: int | None, head: bytes, provider: str = "", provider_session_id: str | None = None
    ) -> None:
        self.key = key
        self.last_seq = last_seq or 0
        self.head = head
        self.provider = provider
        self.provider_session_id = provider_session_id

    def next_seq(self, session_id: str, events: Sequence[ev.Event]) -> int:
        """The seq of the session's first event among these."""
        if not self.last_seq:
            first = next(event for event in events if event.session_id == session_id)
            if isinstance(first, ev.RecordPruned) and first.seq > 0:  # what is pruned elsewhere
                self.head = head_below(first, self.head)
                return first.seq
        return self.last_seq + 1

    def link(self, seq: int, records: Sequence[bytes]) -> list[bytes]:
        """Chain records from this seq on; returns their digests."""
        digests = links(self.head, records)
        self.last_seq, self.head = seq + len(digests) - 1, digests[-1]
        return digests

    def learn(self, event: ev.Event) -> bool:
        """Whether the event changes the session's provider, or its id of the session."""
        after = session_after(self.provider, self.provider_session_id, event)
        if after is not None:
            self.provider, self.provider_session_id = after
        return after is not None


def run_columns(run: RunInfo) -> tuple[Any, ...]:
    """The values of `RUN_COLUMNS`. Raises as the encoder does if the spec is not JSON."""
    at = run.created_at
    return run.run_id, run.provider, run.status, at and at.isoformat(), at and ev.at_ms(at), _encode(run.spec)


class Transaction(ABC):
    """Writes stored as one unit. Each database adds how they are locked, sent and committed."""

    dialect: ClassVar[Dialect]
    _rows: Gathered
    _runs: dict[str, KnownRun]

    @abstractmethod
    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """The rows of a statement within the transaction."""

    def change(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Write something now; returns the rows."""
        return self.rows(sql, values)

    @abstractmethod
    def write(
        self, sql: str, values: Sequence[Any] = (), *, in_order: bool = False, runs: Sequence[str] = ()
    ) -> None:
        """Queue a write to the rows of `runs`; with `in_order` it follows the events, nobody else writing."""

    @abstractmethod
    def lock(self, session_ids: Iterable[str] = (), run_ids: Iterable[str] = (), *, make: bool = True) -> None:
        """Lock and read these sessions and runs; with `make`, missing sessions are created."""

    def lock_budgets(self) -> None:
        """Lock and read all budgets."""
        self.lock()

    @abstractmethod
    def send_command(self, command: Command) -> None:
        """Queue a command."""

    @abstractmethod
    def instructed(self) -> int:
        """The number of the command, which is the transaction's last write."""

    def remove_beside(self, session_id: str) -> None:  # noqa: B027 - most have nothing
        """Remove what this database alone keeps beside a session."""

    @property
    @abstractmethod
    def last_command(self) -> int:
        """The number of the latest command when it began."""

    def append(self, batch: Batch, *, find_stored: bool, epoch: int = 0) -> list[ev.Event]:
        """Gather the rows of events; returns the events as they will be stored. With `find_stored`, stored events are
        left out; without it, a repeated event_id breaks the commit. A unit that is stored already is not stored
        again. Raises StoreError, with nothing gathered, for events of a run that `epoch` has not claimed or that are
        not admitted.
        """
        for part in batch.parts:
            owner = self._epoch(part.run_id) if part.run_id else epoch
            if owner != epoch:
                raise invariants.fenced(part.run_id, find_owner(self, owner))
        if batch.unit_start and batch.unit_start <= self.session(batch.events[0].session_id).last_seq:
            return self._append_rest(batch, epoch)
        if not find_stored:
            try:
                return self._append(batch)
            except StoreError:  # what is not admitted may be stored already
                pass
        return self._append_new(batch.events)

    def check_new(self, run: RunInfo) -> None:
        """Raises StoreError for a run without ids, or whose id is taken."""
        invariants.check_new(run, is_stored=self._run(run.run_id) is not None)

    def insert_run(self, run: RunInfo, epoch: int = 0) -> None:
        """Queue a new run, claimed by that epoch. Raises StoreError if it cannot be stored."""
        try:
            self._insert_run(run, epoch)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise StoreError(f"run `{run.run_id}` cannot be stored: {error}", kind="bad_record") from error
        self._runs[run.run_id] = (run.status, run.provider, epoch, "")
        self.write(*marked(RUNS, run_mark(run.run_id)), in_order=True)

    @abstractmethod
    def session(self, session_id: str) -> KnownSession:
        """A session of the transaction, which need not be stored."""

    @abstractmethod
    def _run(self, run_id: str) -> KnownRun | None:
        """A run, or None."""

    @abstractmethod
    def _insert_run(self, run: RunInfo, epoch: int) -> None:
        """Queue its row."""

    @abstractmethod
    def _append_new(self, events: Sequence[ev.Event]) -> list[ev.Event]:
        """Append the events that are not stored yet; returns all as stored."""

    def _run_state(self, run_id: str) -> tuple[RunStatus, str] | None:
        run = self._run(run_id)
        return run and (run[0], run[3])

    def _epoch(self, run_id: str) -> int:
        run = self._run(run_id)
        return 0 if run is None else run[2]

    def _append_rest(self, batch: Batch, epoch: int) -> list[ev.Event]:
        """Append the rest of a partly stored unit; returns all as stored."""
        first = batch.events[0]
        sql = "SELECT seq, data FROM events WHERE session_key = ? AND seq >= ? AND run_id = ? ORDER BY seq"
        rows = self.rows(sql, (self.session(first.session_id).key, batch.unit_start, first.run_id))
        rows += self._rows.of_run(first.run_id, batch.unit_start)
        records = (from_record(data, session_id=first.session_id, seq=seq) for seq, data in rows)
        return append_rest(batch.events, records, self._append_new, epoch=epoch)

    def _append(self, batch: Batch) -> list[ev.Event]:
        next_seq = {id: self.session(id).next_seq(id, batch.events) for id in batch.first_seq}
        if next_seq != batch.first_seq:
            batch = Batch(batch.events, next_seq)
        admit(batch, self._run_state)
        for part, rows in zip(batch.parts, batch.rows, strict=True):
            session = self.session(part.session_id)
            for event in part.news:
                self._note(event, session)
            if part.delta is not None and part.delta.in_flight is not None:
                self._runs[part.run_id] = (*self._runs[part.run_id][:3], part.delta.in_flight)
            self._rows.add(session.key, part, rows, session.link(part.seq, part.records))
        return batch.events

    def _note(self, event: ev.Event, session: KnownSession) -> None:
        """Update the rows of an event's session, run and approvals."""
        if session.learn(event):
            sql = "UPDATE sessions SET provider = ?, provider_session_id = ? WHERE key = ?"
            self.write(sql, (session.provider, session.provider_session_id, session.key))
        if event.run_id:
            self._note_run(event)
        if isinstance(event, ev.ApprovalEvent):
            if asks(event):
                values = (event.approval_id, session.key, event.seq, event.run_id, event.held, event.ran)
                self.write(_REQUESTED, values, in_order=True)
            elif not isinstance(event, ev.ToolApprovalRequested):
                self._close(event)
        elif isinstance(event, ev.TERMINAL):
            self._withdraw(event)

    def _note_run(self, event: ev.Event) -> None:
        run = self._run(event.run_id)
        if run is None:
            self.insert_run(RunInfo(run_id=event.run_id, session_id=event.session_id, created_at=event.at))
            run = self._runs[event.run_id]
        status, provider, epoch, in_flight = run
        after = run_after(status, provider, event)
        if after is not None:
            self._runs[event.run_id] = (*after, epoch, in_flight)
            self.write("UPDATE runs SET status = ?, provider = ? WHERE run_id = ?", (*after, event.run_id))

    def _close(self, event: ev.ApprovalEvent) -> None:
        """Close an approval; an earlier answer is kept if the event repeats it, or withdraws it; see `closed`."""
        state, answer = state_after(event), "NULL"
        values: tuple[Any, ...] = ()
        if event.by is None and state == "withdrawn":
            answer, values = "CASE WHEN answer = ? THEN NULL ELSE answer END", (_encode(NOBODY_IN_TIME),)
        elif event.by is not None:
            answer = "CASE WHEN state != ? THEN ? ELSE answer END"
            given = ApprovalAnswer(granted=state == "granted", by=event.by, reason=event.reason)
            values = (state, _encode(given))
        columns = f"answer = {answer}, state = ?, answered_at = ?, recorded = true"
        values = (*values, state, _text(event), event.approval_id)
        self.write(f"UPDATE approvals SET {columns} WHERE approval_id = ?", values, in_order=True)

    def _withdraw(self, end: ev.Event) -> None:
        """Withdraw the pending approvals of an ended run, unless it ended to request them (see `outlives`)."""
        unless = " AND held" if isinstance(end, ev.RunCancelled) else ""
        sql = "UPDATE approvals SET state = 'withdrawn', answered_at = ?, recorded = true WHERE run_id = ?"
        self.write(f"{sql} AND {WAITING}{unless}", (_text(end), end.run_id), in_order=True)


def _text(event: ev.Event) -> str | None:
    return None if event.at is None else event.at.isoformat()


_REQUESTED = """INSERT INTO approvals (approval_id, session_key, seq, run_id, state, held, ran)
    VALUES (?, ?, ?, ?, 'requested', ?, ?) ON CONFLICT (approval_id) DO NOTHING"""
_SELECT = """SELECT position, session_id, approval_id, approvals.run_id, approvals.seq, data, state, answer,
        answered_at, recorded
    FROM approvals JOIN sessions ON key = approvals.session_key
    JOIN events ON events.session_key = approvals.session_key AND events.seq = approvals.seq"""
_answer = msgspec.json.Decoder(ApprovalAnswer).decode
_instruction = msgspec.json.Decoder(Command).decode


def answer(
    recorder: Transaction, approval_id: str, given: ApprovalAnswer, *, at: datetime, event: ev.Event | None = None
) -> StoredApproval:
    """Record an answer, if it is the first, as a command or as the event; see `Store.answer`."""
    session_id = _found(recorder, approval_id).request.session_id
    batch = Batch([] if event is None else [event])
    recorder.lock([session_id, *batch.first_seq], [part.run_id for part in batch.parts])
    stored = _found(recorder, approval_id)
    check_answerable(stored, given)
    answered = replace(stored, state="granted" if given.granted else "denied", answer=given, answered_at=at)
    if batch.events:
        recorder.append(batch, find_stored=False)
        return answered
    recorder.write(
        "UPDATE approvals SET state = ?, answer = ?, answered_at = ? WHERE approval_id = ?",
        (answered.state, _encode(given), at.isoformat(), approval_id),
    )
    recorder.send_command(AnswerGiven(run_id=stored.request.run_id, approval_id=approval_id, answer=given, at=at))
    return answered


def keep(recorder: Transaction, command: Command) -> int:
    """Store a command; returns its number."""
    recorder.lock()
    recorder.send_command(command)
    return recorder.instructed()


def blocks_change(command: Command) -> tuple[str, tuple[Any, ...]] | None:
    """The changes that the latest command makes to the start blocks."""
    if isinstance(command, Block):
        sql = "INSERT INTO blocks SELECT max(number), CAST(? AS text), CAST(? AS text) FROM instructions"
        return sql, (command.scope, command.value)
    if isinstance(command, UnblockStarts):
        sql = "DELETE FROM blocks WHERE ? = 'all' OR (scope, value) = (?, ?)"
        return sql, (command.scope, command.scope, command.value)
    return None


def _found(recorder: Transaction, approval_id: str) -> StoredApproval:
    stored = find_approval(recorder, approval_id)
    if stored is None:
        raise no_approval(approval_id)
    return stored


def blocks(tables: Tables) -> list[Block]:
    """The start blocks in effect, oldest first."""
    rows = tables.rows("SELECT number, data FROM blocks JOIN instructions USING (number) ORDER BY number")
    return [block for block in map(_read, rows) if isinstance(block, Block)]


def find_approval(tables: Tables, approval_id: str) -> StoredApproval | None:
    """An approval, or None."""
    rows = tables.rows(f"{_SELECT} WHERE approval_id = ?", (approval_id,))
    return _approval(rows[0]) if rows else None


def approvals_after(
    tables: Tables,
    *,
    waiting: bool = True,
    run_id: str | None = None,
    session_id: str | None = None,
    after: int = 0,
    limit: int = 100,
) -> list[StoredApproval]:
    """See `Store.approvals`."""
    found: list[Condition] = [("position > ?", after)]
    found += [(WAITING,)] if waiting else []
    found += [("approvals.run_id = ?", run_id)] if run_id is not None else []
    found += [("session_id = ?", session_id)] if session_id is not None else []
    wanted, values = all_of(found)
    rows = tables.rows(f"{_SELECT} WHERE {wanted} ORDER BY position LIMIT ?", (*values, max(limit, 0)))
    return [_listed(row) for row in rows]


def _listed(row: tuple[Any, ...]) -> StoredApproval:
    """An approval; if it cannot be read, the readable part, so that the others can be listed all the same."""
    try:
        return _approval(row)
    except StoreError as error:
        number, session_id, approval_id, run_id, _, _, state, *_ = row
        about = {"approval_id": approval_id, "run_id": run_id, "session_id": session_id, "reason": str(error)}
        call = ToolCall(id="", name="unreadable")
        request = ApprovalRequest(**about, call=call, input_digest="", policy_name="", violation_kind="")
        return StoredApproval(request=request, state=state, number=number)


def _approval(row: tuple[Any, ...]) -> StoredApproval:
    number, session_id, _, _, seq, data, state, given, answered_at, recorded = row
    event = from_record(data, session_id=session_id, seq=seq)
    try:
        if not isinstance(event, ev.ToolApprovalRequested):
            raise TypeError(event.type)
        return StoredApproval(
            request=shown(event),
            state=state,
            answer=given and _answer(given),
            answered_at=datetime.fromisoformat(answered_at) if answered_at else None,
            recorded=bool(recorded),
            number=number,
        )
    except (*NOT_JSON, ValueError, TypeError) as error:
        what = f"approval {number}, of session `{session_id}`,"
        raise StoreError(f"{what} was changed, or is of another version", kind="corrupt") from error


def commands_after(tables: Tables, *, after: int = 0) -> list[Command]:
    """See `Store.commands`."""
    found: list[Command] = []
    for row in tables.rows("SELECT number, data FROM instructions WHERE number > ? ORDER BY number", (after,)):
        try:
            found.append(_read(row))
        except StoreError:
            if not found:
                raise
            break
    return found


def last_command(tables: Tables) -> int:
    """The number of the latest command, 0 without any."""
    rows = tables.rows(tables.dialect.last_command)
    return int(rows[0][0]) if rows else 0


def _read(row: tuple[int, bytes]) -> Command:
    number, data = row
    try:
        found: Command = replace(_instruction(data), number=number)
    except NOT_JSON as error:
        raise StoreError(
            f"command {number} was changed, or is of another version: {json_words(error)}", kind="no_command"
        ) from error
    return found


_N = len(FIGURES)
_OPEN = "ended_seq IS NULL"


class Change(NamedTuple):
    """One kind of change: {0} is the run's id, {1} and so on are the values of `row`; {greater} is the function that
    returns the greater of two.
    """

    sets: str
    where: str
    row: Callable[[RunDelta], tuple[Any, ...] | None]


def _counts(delta: RunDelta) -> tuple[Any, ...] | None:
    return tuple(delta.counts.values()) if any(delta.counts.values()) else None


def _usage(delta: RunDelta) -> tuple[Any, ...] | None:
    return (*delta.added, *delta.floor) if any(delta.floor) else None


def _end(delta: RunDelta) -> tuple[Any, ...] | None:
    event = delta.ended
    return None if event is None else (event.seq, ms_of(event), *delta.settled)


def _totals(template: str) -> str:
    places = ((name, f"{{{n}}}", f"{{{n + _N}}}") for n, name in enumerate(FIGURES, 1))
    return ", ".join(template.format(name=name, first=first, second=second) for name, first, second in places)


def _in_flight(delta: RunDelta) -> tuple[Any, ...] | None:
    return None if delta.in_flight is None else (delta.in_flight,)


FIGURED: tuple[Change, ...] = (
    Change(", ".join(f"{name} = {name} + {{{n}}}" for n, name in enumerate(COUNTERS.values(), 1)), "TRUE", _counts),
    Change(_totals("{name} = {{greater}}({name} + {first}, {second})"), _OPEN, _usage),
    Change(
        "ended_seq = {1}, ended_ms = {2}, "
        + ", ".join(f"{name} = coalesce({{{n}}}, {name})" for n, name in enumerate(FIGURES, 3)),
        _OPEN,
        _end,
    ),
)

IN_FLIGHT = Change("calls_in_flight = {1}", "TRUE", _in_flight)
"""The change that rows of figures do not include."""
_RUNS = """SELECT run_id, violations, status IN ('created', 'running') FROM runs WHERE session_key = ?"""
_REMOVED = ("DELETE FROM approvals WHERE session_key = ?", "DELETE FROM runs WHERE session_key = ?")


def prune(recorder: Transaction, event: ev.RecordPruned, *, up_to: int) -> ev.RecordPruned | None:
    """See `Store.prune`."""
    recorder.lock([event.session_id], make=False)
    session = recorder.session(event.session_id)
    if not session.key or session.last_seq != up_to:
        return None
    key, last_seq = session.key, session.last_seq
    runs = recorder.rows(_RUNS, (key,))
    if any(goes_on for *_, goes_on in runs):
        return None
    [(first_seq, events)] = recorder.rows("SELECT min(seq), count(*) FROM events WHERE session_key = ?", (key,))
    left = replace(
        event,
        first_seq=first_seq,
        last_seq=last_seq,
        events=events,
        runs=len(runs),
        violations=sum(violations for _, violations, _ in runs),
        head=session.head.hex(),
    )
    [stored] = recorder.append(Batch([left], {event.session_id: last_seq + 1}), find_stored=False)
    recorder.write("DELETE FROM events WHERE session_key = ? AND seq <= ?", (key, last_seq), in_order=True)
    ids = [run_id for run_id, *_ in runs]
    recorder.write(*marked(RUNS, *map(run_mark, ids)), in_order=True)
    for sql in _REMOVED:
        recorder.write(sql, (key,), in_order=True, runs=ids)
    recorder.remove_beside(event.session_id)
    assert isinstance(stored, ev.RecordPruned)
    return stored
