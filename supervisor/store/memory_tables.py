"""The events of a store in memory, encoded, and the lines of sessions and runs that follow from them."""

from array import array
from bisect import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace
from sniffio import current_async_library

from proctor.policies.events import TERMINAL, ApprovalEvent, Event, RecordPruned

from ..ports.processes import is_gone
from ..ports.stored_types import (
    GOING_ON,
    AnswerGiven,
    ApprovalAnswer,
    Block,
    Cancel,
    Command,
    LogEntry,
    Owner,
    RunInfo,
    RunStatus,
    SessionInfo,
    StoredApproval,
    UnblockStarts,
)
from . import invariants, records
from .invariants import asks, check_answerable, closed, no_approval, outlives, shown
from .records import Unit, UnitPart


def places(kept: Sequence[object], after: int, newest_first: bool) -> Iterator[int]:
    """The indexes from `after` on, those stored meanwhile included; with `newest_first` backwards, without them."""
    if newest_first:
        yield from range(len(kept) - 1, max(after, 0) - 1, -1)
        return
    n = max(after, 0)
    while n < len(kept):
        yield n
        n += 1


class SessionRecords:
    """One session's records: `data[n]`, `run_ids[n]` and `places[n]`, its index in the log, belong to seq n + 1."""

    __slots__ = ("_digests", "data", "info", "places", "run_ids", "seq_of")

    def __init__(self, session_id: str) -> None:
        self.info = SessionInfo(session_id=session_id)
        self.data: list[bytes] = []  # empty: pruned
        self.run_ids: list[str] = []
        self.places = array("q")
        self._digests = bytearray()
        self.seq_of: dict[str, int] = {}

    def add(self, part: UnitPart, place: int) -> None:
        """Add the session's next records, of one run; `place` is that of the first."""
        count = len(part.records)
        self.data += [b"%b" % data for data in part.records]  # a copy: msgspec leaves half as much room again behind
        self.run_ids += [part.run_id] * count
        self.places.extend(range(place, place + count))
        self.seq_of |= {event.event_id: event.seq for event in part.events if event.event_id}

    def digest(self, seq: int) -> bytes:
        """The digest of the chain at that seq; computed on first use, as most are never used."""
        made = len(self._digests) // records.SIZE
        if made < seq:
            before = self.digest(made) if made else records.root(self.info.session_id)
            for digest in records.links(before, self.data[made:seq]):
                self._digests += digest
        return bytes(self._digests[(seq - 1) * records.SIZE : seq * records.SIZE])

    def leave_out(self, count: int) -> None:
        """Drop the first records, as pruned."""
        self.data[:count] = [b""] * count
        self.run_ids[:count] = [""] * count
        self.seq_of.clear()

    def begin_after(self, seq: int, head: bytes) -> None:
        """Begin after records that another store pruned, up to that seq; `head` is the digest of the last."""
        self.leave_out(seq)
        self.places = array("q", [-1] * seq)
        self._digests = bytearray(records.SIZE * (seq - 1)) + head

    def note(self, event: Event) -> None:
        """Update the session's row by an event."""
        after = records.session_after(self.info.provider, self.info.provider_session_id, event)
        if after is not None:
            self.info = replace(self.info, provider=after[0], provider_session_id=after[1])


class Records:
    """Sessions and runs by id, and the log of all events.

    `noted` is called with each event that ends a run or is about an approval.
    """

    def __init__(self, noted: Callable[[Event], None]) -> None:
        self.sessions: dict[str, SessionRecords] = {}
        self.runs: dict[str, RunInfo] = {}
        self.log: list[SessionRecords] = []
        self._calls: dict[str, str] = {}
        self._noted = noted

    def append(self, events: Sequence[Event]) -> list[Event]:
        """Store events as one unit, each id of a session once; returns them as stored."""
        return records.append_new(events, self._stored, self._append)

    def _append(self, events: Sequence[Event]) -> list[Event]:
        first: dict[str, Event] = {}
        for event in events:
            first.setdefault(event.session_id, event)
        unit = Unit(events, {session_id: self._next_seq(event) for session_id, event in first.items()})
        records.admit(unit, self._run_state)
        for part in unit.parts:
            self._keep(part)
        return unit.events

    def _run_state(self, run_id: str) -> tuple[RunStatus, str] | None:
        run = self.runs.get(run_id)
        return None if run is None else (run.status, self._calls.get(run_id, ""))

    def _next_seq(self, event: Event) -> int:
        last = self.last_seq(event.session_id)
        return event.seq if not last and isinstance(event, RecordPruned) and event.seq > 0 else last + 1

    def prune(self, event: RecordPruned, up_to: int) -> RecordPruned | None:
        """See `Store.prune`."""
        session = self.sessions.get(event.session_id)
        runs = [run for run in self.runs.values() if run.session_id == event.session_id]
        if session is None or len(session.data) != up_to or any(run.status in GOING_ON for run in runs):
            return None
        kept = [n for n, data in enumerate(session.data) if data]
        left = replace(
            event,
            first_seq=kept[0] + 1,
            last_seq=up_to,
            events=len(kept),
            runs=len(runs),
            violations=sum(run.violations for run in runs),
            head=session.digest(up_to).hex(),
        )
        [stored] = self.append([left])
        session.leave_out(up_to)
        for run in runs:
            del self.runs[run.run_id]
        assert isinstance(stored, RecordPruned)
        return stored

    def last_seq(self, session_id: str) -> int:
        """The seq of a session's latest event, 0 when it has none."""
        session = self.sessions.get(session_id)
        return len(session.data) if session is not None else 0

    def of_run(self, session_id: str, run_id: str, start: int) -> Iterator[Event]:
        """The events of a run from a seq on."""
        session = self.sessions.get(session_id)
        for n in range(start - 1, len(session.data) if session is not None else 0):
            if session is not None and session.data[n] and session.run_ids[n] == run_id:
                yield records.from_record(session.data[n], session_id=session_id, seq=n + 1)

    def session(self, session_id: str) -> SessionRecords:
        """A session, created if missing."""
        session = self.sessions.get(session_id)
        if session is None:
            session = self.sessions[session_id] = SessionRecords(session_id)
        return session

    def entry(self, n: int) -> LogEntry | None:
        """The event at that index of the log; None for one that was pruned."""
        session = self.log[n]
        seq = bisect(session.places, n)
        data = session.data[seq - 1]
        if not data:
            return None
        run = self.runs.get(session.run_ids[seq - 1])
        return LogEntry(
            position=n + 1,
            session_id=session.info.session_id,
            run_id=session.run_ids[seq - 1],
            seq=seq,
            tenant=None if run is None else run.tenant,
            data=data,
            digest=session.digest(seq),
        )

    def _stored(self, event: Event) -> Event | None:
        session = self.sessions.get(event.session_id)
        if session is None:
            return None
        seq = session.seq_of.get(event.event_id)
        if seq is None:
            return None
        return records.from_record(session.data[seq - 1], session_id=event.session_id, seq=seq)

    def _keep(self, part: UnitPart) -> None:
        session, run_id = self.session(part.session_id), part.run_id
        if not session.data and part.seq > 1:
            first = part.events[0]
            session.begin_after(part.seq - 1, records.head_below(first, records.root(first.session_id)))
        session.add(part, len(self.log))
        self.log += [session] * len(part.events)
        for event in part.news:
            self._note(event, session)
        if run_id and part.delta is not None:
            self.runs[run_id] = part.delta.applied(self.runs[run_id])
            if part.delta.in_flight is not None:
                self._calls[run_id] = part.delta.in_flight
            if part.delta.ended is not None:
                self._calls.pop(run_id, None)

    def _note(self, event: Event, session: SessionRecords) -> None:
        """Update the rows of an event's session and run."""
        session.note(event)
        if event.run_id:
            self._note_run(event)
        if isinstance(event, (ApprovalEvent, *TERMINAL)):
            self._noted(event)

    def _note_run(self, event: Event) -> None:
        run_id = event.run_id
        run = self.runs.get(run_id) or RunInfo(run_id=run_id, session_id=event.session_id, created_at=event.at)
        after = records.run_after(run.status, run.provider, event)
        self.runs[run_id] = run if after is None else replace(run, status=after[0], provider=after[1])


class Claims:
    """Owners by epoch, and the epoch of each of a store's runs; an owner's lease is timed by its own event loop's
    clock, which tests make virtual.
    """

    def __init__(self, runs: Mapping[str, RunInfo]) -> None:
        self._runs = runs
        self._owners: dict[int, Owner] = {}
        self._until: dict[int, tuple[Callable[[], float], float]] = {}
        self._epochs: dict[str, int] = {}
        self._open: dict[str, str] = {}  # the claimed run of each session, while it is not over

    def register(self, owner: Owner, lease_s: float) -> Owner:
        new = replace(owner, epoch=len(self._owners) + 1, gone=False)
        self._owners[new.epoch] = new
        self._until[new.epoch] = _lease(lease_s)
        return new

    def renew(self, epoch: int, lease_s: float) -> None:
        """Extend a lease. Raises StoreError for one that was released, or never existed."""
        if epoch not in self._until:
            raise invariants.no_owner(epoch)
        self._until[epoch] = _lease(lease_s)

    def release(self, epoch: int) -> None:
        self._until.pop(epoch, None)

    def check_fence(self, run_id: str, epoch: int) -> None:
        """Raises StoreError for events of a run that this epoch has not claimed."""
        if self._epochs.get(run_id, 0) != epoch:
            raise invariants.fenced(run_id, self._owner(run_id))

    def check_drawing(self, run_id: str, epoch: int) -> None:
        """Raises StoreError for a run that is missing, over, or not claimed by this epoch."""
        run = self._runs.get(run_id)
        if run is None:
            raise invariants.no_run(run_id)
        if run.status not in GOING_ON:
            raise records.run_over(run_id, run.status)
        self.check_fence(run_id, epoch)

    def check(self, run: RunInfo, epoch: int) -> None:
        """Raises StoreError if the owner, or another run of the session, rules a claim out."""
        if not self._holds(epoch):
            raise invariants.no_owner(epoch)
        other = self._open.get(run.session_id, run.run_id)
        owner = self._owner(other)
        if other != run.run_id and owner and (not owner.gone or self._runs[other].status == "running"):
            raise invariants.session_busy(run.session_id, other, owner)

    def claim(self, run: RunInfo, epoch: int) -> None:
        """Claim a run; runs of its session that another owner claimed and never started are released."""
        other = self._open.get(run.session_id)
        if other is not None:
            self._epochs.pop(other, None)
        self._open[run.session_id] = run.run_id
        self._epochs[run.run_id] = epoch

    def unclaim(self, run: RunInfo) -> None:
        self._epochs.pop(run.run_id, None)
        self._open.pop(run.session_id, None)

    def holds(self, run_id: str, epoch: int) -> bool:
        """Whether a run's reservation under an epoch counts: while the run goes on, even without its owner; for a run
        that never started, while that owner lives.
        """
        run = self._runs.get(run_id)
        if run is None or not epoch:
            return False
        created = run.status == "created" and self._epochs.get(run_id, 0) == epoch and self._holds(epoch)
        return run.status == "running" or created

    def over(self, end: Event) -> None:
        """End a run: it keeps its owner, and its session is free."""
        if self._open.get(end.session_id) == end.run_id:
            del self._open[end.session_id]

    def lost(self) -> Iterator[RunInfo]:
        """The runs that are not over and whose owner is gone."""
        lost = {run_id for run_id in self._open.values() if not self._holds(self._epochs[run_id])}
        return (self.shown(run) for run in self._runs.values() if run.run_id in lost) if lost else iter(())

    def shown(self, run: RunInfo) -> RunInfo:
        """The run with its owner, and as `lost` if that is gone."""
        owner = self._owner(run.run_id)
        if owner is None:
            return run
        lost = owner.gone and run.status == "running"
        return replace(run, owner=owner, status="lost" if lost else run.status)

    def _owner(self, run_id: str) -> Owner | None:
        epoch = self._epochs.get(run_id, 0)
        return replace(self._owners[epoch], gone=not self._holds(epoch)) if epoch else None

    def _holds(self, epoch: int) -> bool:
        now, until = self._until.get(epoch, (int, 0.0))
        return now() < until and not is_gone(self._owners[epoch])


def _lease(lease_s: float) -> tuple[Callable[[], float], float]:
    """The event loop's clock, which any thread may read, also after the loop's end, and when the lease is up."""
    if current_async_library() == "trio":
        from trio.lowlevel import current_clock

        now = current_clock().current_time
    else:
        from asyncio import get_running_loop

        now = get_running_loop().time
    return now, now() + lease_s


class ApprovalTable:
    """The `stored` approvals in the order of their requests, and the `commands` and current `blocks` in theirs."""

    def __init__(self) -> None:
        self.stored: dict[str, StoredApproval] = {}
        self._count = 0
        self._waiting: dict[str, set[str]] = {}
        self.commands: list[Command] = []
        self.blocks: list[Block] = []

    def note(self, event: Event) -> None:
        """Update approvals by a stored event."""
        if isinstance(event, ApprovalEvent):
            stored = self.stored.get(event.approval_id)
            if stored is None and asks(event):
                self._count += 1
                self.stored[event.approval_id] = StoredApproval(request=shown(event), number=self._count)
                self._waiting.setdefault(event.run_id, set()).add(event.approval_id)
            elif stored is not None and event.type != "tool_approval_requested":
                self._keep(closed(stored, event))
        elif isinstance(event, TERMINAL):
            for approval_id in self._waiting.pop(event.run_id, ()):
                stored = self.stored[approval_id]
                if stored.state == "requested" and not outlives(stored, event):
                    self.stored[approval_id] = replace(stored, state="withdrawn", answered_at=event.at, recorded=True)

    def forget(self, session_id: str) -> None:
        """Remove the approvals of a pruned session."""
        for approval_id, stored in list(self.stored.items()):
            if stored.request.session_id == session_id:
                del self.stored[approval_id]
                self._waiting.get(stored.request.run_id, set()).discard(approval_id)

    def answer(self, approval_id: str, given: ApprovalAnswer, at: datetime, *, instruct: bool) -> StoredApproval:
        """Record an answer, if it is the first; see `Store.answer`."""
        stored = self.stored.get(approval_id)
        if stored is None:
            raise no_approval(approval_id)
        check_answerable(stored, given)
        state = "granted" if given.granted else "denied"
        answered = replace(stored, state=state, answer=given, answered_at=at)
        if instruct:
            self._keep(answered)
            run_id = stored.request.run_id
            number = len(self.commands) + 1
            given_answer = AnswerGiven(run_id=run_id, approval_id=approval_id, answer=given, at=at, number=number)
            self.commands.append(given_answer)
        return answered

    def send_command(self, command: Cancel | Block | UnblockStarts) -> int:
        """Store a command; returns its number."""
        number = len(self.commands) + 1
        command = replace(command, number=number)
        self.commands.append(command)
        if isinstance(command, Block):
            self.blocks.append(command)
        elif isinstance(command, UnblockStarts):
            self.blocks = [block for block in self.blocks if not command.lifts(block)]
        return number

    def _keep(self, approval: StoredApproval) -> None:
        request = approval.request
        self.stored[request.approval_id] = approval
        self._waiting.get(request.run_id, set()).discard(request.approval_id)
