"""The in-memory Store: it keeps the promises of a durable store within one process, for any of its threads."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import wraps
from inspect import iscoroutinefunction
from itertools import dropwhile, islice
from typing import Any, NamedTuple, TypeVar

import msgspec

from proctor.policies.events import TERMINAL, Event, RecordPruned
from proctor.policies.limits import BudgetAccount

from ..errors import StoreError
from ..ports.budget_ledger import (
    DIGITS,
    PARTS_KEPT,
    BudgetInfo,
    Reservation,
    ReservationResult,
    Window,
    allocate,
    grown,
    shown,
    window_at,
)
from ..ports.store import Notifier, Store
from ..ports.stored_types import (
    ANY_RUN,
    ApprovalAnswer,
    Block,
    Cancel,
    Command,
    LogEntry,
    LogPosition,
    Owner,
    RunFilter,
    RunInfo,
    SessionInfo,
    StoredApproval,
    StoreSize,
    UnblockStarts,
)
from . import invariants
from .memory_tables import ApprovalTable, Claims, Records, places
from .records import append_rest, from_record, owners, unit_start

S = TypeVar("S")
T = TypeVar("T")


class _Closed:
    """In the place of the tables of a closed store."""

    def __getattr__(self, name: str) -> Any:
        raise StoreError("the store is closed", kind="closed")


_CLOSED: Any = _Closed()


def _one_at_a_time(store: type[S]) -> type[S]:
    """Each of its methods that does not suspend excludes the others, in whatever thread they are called."""

    def excluding(method: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
        @wraps(method)
        async def call(self: Any, *args: Any, **named: Any) -> T:
            with self._lock:
                return await method(self, *args, **named)

        return call

    for name, method in list(vars(store).items()):
        if iscoroutinefunction(method) and name != "wait":
            setattr(store, name, excluding(method))
    return store


@_one_at_a_time
class MemoryStore(Store):
    """Keeps everything in this process. No method but `wait` suspends, so every append is one unit.

    Records are kept encoded, so that readers get what a durable store would give and share no state with writers.
    `wall_clock` gives the time for the windows of budgets, in seconds since the epoch.
    """

    def __init__(self, *, wall_clock: Callable[[], float] = time.time) -> None:
        self._records = Records(self._noted)
        self._sessions, self._runs = self._records.sessions, self._records.runs
        self._id = uuid.uuid4().hex[:16]
        self._claims = Claims(self._runs)
        self._approvals = ApprovalTable()
        self._ledger = Ledger(lambda: round(wall_clock() * 1000), self._claims.holds)
        self._notifier = Notifier()
        self._lock = threading.RLock()

    async def append(self, events: Sequence[Event], *, epoch: int = 0) -> list[Event]:
        return self._append(events, epoch)

    async def read(
        self, session_id: str, *, after: int = 0, run_id: str | None = None, newest_first: bool = False
    ) -> AsyncIterator[Event]:
        session = self._sessions.get(session_id)
        if session is None:
            return
        for n in places(session.data, after, newest_first):
            with self._lock:
                data, of_run = session.data[n], session.run_ids[n]
            if data and run_id in (None, of_run):
                yield from_record(data, session_id=session_id, seq=n + 1)

    async def log(
        self, *, after: int = 0, tenant: str | None = None, newest_first: bool = False
    ) -> AsyncIterator[LogEntry]:
        records = self._records
        for n in places(records.log, after, newest_first):
            with self._lock:  # the digests of a session are computed on first use
                entry = records.entry(n)
            if entry is not None and tenant in (None, entry.tenant):
                yield entry

    async def place(self) -> LogPosition:
        return LogPosition(store_id=self._id, position=len(self._records.log))

    async def last_seq(self, session_id: str) -> int:
        return self._records.last_seq(session_id)

    async def create_run(self, run: RunInfo, *, epoch: int = 0) -> RunInfo:
        """Register a run before it starts; see `Store.create_run`. Raises StoreError."""
        invariants.check_new(run, is_stored=self._runs.get(run.run_id) is not None)
        if epoch:
            self._claims.check(run, epoch)
        tenant, labels = owners(run.spec)
        stored = msgspec.structs.replace(
            run, owner=None, after=len(self._approvals.commands), tenant=tenant, labels=labels
        )
        self._runs[run.run_id] = stored
        self._records.session(run.session_id)
        if epoch:
            self._claims.claim(run, epoch)
        self._notifier.notify()
        return self._claims.shown(stored)

    async def claim_run(self, run_id: str, *, epoch: int, lost: bool = False) -> RunInfo:
        run = self._runs.get(run_id)
        if run is None:
            raise invariants.no_run(run_id)
        shown = self._claims.shown(run)
        invariants.check_claim(shown, epoch, lost=lost)
        self._claims.check(run, epoch)
        self._claims.claim(run, epoch)
        attempts = shown.attempts_with(epoch, lost=lost)
        self._runs[run_id] = run = msgspec.structs.replace(run, attempts=attempts)
        self._notifier.notify()
        return self._claims.shown(run)

    async def release_run(self, run_id: str, *, epoch: int) -> None:
        run = self._runs.get(run_id)
        if run is not None and self._claims.shown(run).is_claimed_by(epoch):
            self._claims.unclaim(run)
            self._runs[run_id] = msgspec.structs.replace(run, attempts=max(run.attempts - 1, 0))
            self._notifier.notify()

    async def register(self, owner: Owner, *, lease_s: float) -> Owner:
        return self._claims.register(msgspec.structs.replace(owner, after=len(self._approvals.commands)), lease_s)

    async def renew(self, epoch: int, *, lease_s: float) -> None:
        self._claims.renew(epoch, lease_s)

    async def release(self, epoch: int) -> None:
        self._claims.release(epoch)

    async def lost_runs(self) -> list[RunInfo]:
        return list(self._claims.lost())

    async def run(self, run_id: str) -> RunInfo | None:
        run = self._runs.get(run_id)
        return run and self._claims.shown(run)

    async def runs(
        self,
        *,
        limit: int = 100,
        session_id: str | None = None,
        before: str | None = None,
        where: RunFilter = ANY_RUN,
    ) -> list[RunInfo]:
        newest_first: Iterator[RunInfo] = reversed(self._runs.values())
        if before is not None:
            newest_first = dropwhile(lambda run: run.run_id != before, newest_first)
            next(newest_first, None)
        shown = (self._claims.shown(run) for run in newest_first if session_id in (None, run.session_id))
        return list(islice((run for run in shown if where.matches(run)), max(limit, 0)))

    async def session(self, session_id: str) -> SessionInfo | None:
        session = self._sessions.get(session_id)
        if session is None:
            return None
        return msgspec.structs.replace(session.info, last_seq=len(session.data))

    async def approvals(
        self,
        *,
        waiting: bool = True,
        run_id: str | None = None,
        session_id: str | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> list[StoredApproval]:
        found = (
            approval
            for approval in self._approvals.stored.values()
            if approval.number > after
            and (not waiting or (approval.state == "requested" and not approval.request.ran))
            and run_id in (None, approval.request.run_id)
            and session_id in (None, approval.request.session_id)
        )
        return list(islice(found, max(limit, 0)))

    async def approval(self, approval_id: str) -> StoredApproval | None:
        return self._approvals.stored.get(approval_id)

    async def answer(
        self, approval_id: str, given: ApprovalAnswer, *, at: datetime, event: Event | None = None
    ) -> StoredApproval:
        answered = self._approvals.answer(approval_id, given, at, instruct=event is None)
        if event is not None:
            self._append([event], 0)
        self._notifier.notify()
        return self._approvals.stored.get(approval_id) or answered

    async def send_command(self, command: Cancel | Block | UnblockStarts) -> int:
        number = self._approvals.send_command(command)
        self._notifier.notify()
        return number

    async def blocks(self) -> list[Block]:
        return list(self._approvals.blocks)

    async def commands(self, *, after: int = 0) -> list[Command]:
        return self._approvals.commands[max(after, 0) :]

    async def last_command(self) -> int:
        return len(self._approvals.commands)

    async def reserve(
        self, run_id: str, reservations: Sequence[Reservation], *, epoch: int
    ) -> list[ReservationResult]:
        self._claims.check_drawing(run_id, epoch)
        return self._ledger.reserve(run_id, reservations, epoch)

    async def settle(self, run_id: str, used: Mapping[str, float], *, epoch: int) -> list[ReservationResult]:
        self._claims.check_drawing(run_id, epoch)
        return self._ledger.settle(run_id, used, epoch)

    async def budgets(self) -> list[BudgetInfo]:
        return list(self._ledger.budgets())

    async def prune(self, event: RecordPruned, *, up_to: int) -> RecordPruned | None:
        runs = [run for run in self._runs.values() if run.session_id == event.session_id]
        left = self._records.prune(event, up_to)
        if left is not None:
            for run in runs:
                self._claims.unclaim(run)
            self._approvals.forget(event.session_id)
            self._notifier.notify()
        return left

    async def size(self) -> StoreSize:
        kept = [data for session in self._sessions.values() for data in session.data if data]
        return StoreSize(
            sessions=len(self._sessions),
            runs=dict(Counter(run.status for run in self._runs.values())),
            events=len(kept),
            bytes=sum(map(len, kept)),
        )

    async def compact(self) -> None:
        """No effect: there is no space to free."""

    async def wait(self, token: int, timeout_s: float) -> int:
        return await self._notifier.wait(token, timeout_s)

    async def aclose(self) -> None:
        if self._notifier is not _CLOSED:
            self._notifier.notify()
            self._records = self._sessions = self._runs = self._claims = _CLOSED
            self._approvals = self._ledger = self._notifier = _CLOSED

    async def __aenter__(self) -> MemoryStore:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _append(self, events: Sequence[Event], epoch: int) -> list[Event]:
        for run_id in dict.fromkeys(event.run_id for event in events if event.run_id):
            self._claims.check_fence(run_id, epoch)
        before = len(self._records.log)
        start = unit_start(events) if events else 0
        if 0 < start <= self._records.last_seq(events[0].session_id):
            earlier = self._records.of_run(events[0].session_id, events[0].run_id, start)
            stored = append_rest(events, earlier, self._records.append, epoch=epoch)
        else:
            stored = self._records.append(events)
        if len(self._records.log) > before:
            self._notifier.notify()
        return stored

    def _noted(self, event: Event) -> None:
        self._approvals.note(event)
        if isinstance(event, TERMINAL):
            self._claims.over(event)


class _Share(NamedTuple):
    """One run's use and reservation, and its owner's epoch."""

    used: float
    held: float
    epoch: int


class _Counter:
    """One budget of one key: its use in each part of its window, and each run's use and reservation."""

    def __init__(self, claim: BudgetAccount) -> None:
        self.claim = claim
        self.parts: dict[int, float] = {}
        self.shares: dict[str, _Share] = {}

    def used(self, since: int) -> float:
        return round(sum(amount for part, amount in self.parts.items() if part >= since), DIGITS)

    def oldest(self, since: int) -> int | None:
        """The first part in which something was used."""
        return min((part for part, amount in self.parts.items() if part >= since), default=None)

    def add(self, window: Window, amount: float) -> None:
        if amount:
            self.parts[window.part] = round(self.parts.get(window.part, 0.0) + amount, DIGITS)
            for part in sorted(self.parts)[:-PARTS_KEPT]:
                if part < window.since:
                    del self.parts[part]


class Ledger:
    """Every budget of a store; `holds` says whether a run's reservation under an epoch counts."""

    def __init__(self, now_ms: Callable[[], int], holds: Callable[[str, int], bool]) -> None:
        self._now_ms = now_ms
        self._holds = holds
        self._counters: dict[tuple[str, ...], _Counter] = {}

    def reserve(self, run_id: str, reservations: Sequence[Reservation], epoch: int) -> list[ReservationResult]:
        """Answer each reservation of a run; see `Store.reserve`."""
        now_ms = self._now_ms()
        return [self._reserve_one(run_id, reservation, now_ms, epoch=epoch) for reservation in reservations]

    def settle(self, run_id: str, used: Mapping[str, float], epoch: int) -> list[ReservationResult]:
        """Settle a run's budgets; see `Store.settle`."""
        now_ms, found = self._now_ms(), []
        for counter in self._counters.values():
            if run_id in counter.shares:
                reservation = Reservation(claim=counter.claim, used=used.get(counter.claim.counts, 0.0))
                found.append(self._reserve_one(run_id, reservation, now_ms, epoch=epoch))
                del counter.shares[run_id]
        return found

    def budgets(self) -> Iterator[BudgetInfo]:
        now_ms = self._now_ms()
        for _, counter in sorted(self._counters.items()):
            claim = counter.claim
            window = window_at(claim.window, now_ms)
            held = [share.held for run_id, share in counter.shares.items() if self._holds(run_id, share.epoch)]
            used, oldest = counter.used(window.since), counter.oldest(window.since)
            yield shown(claim, window, used, oldest, reserved=round(sum(held), DIGITS), runs=len(held))

    def _reserve_one(self, run_id: str, reservation: Reservation, now_ms: int, *, epoch: int) -> ReservationResult:
        claim = reservation.claim
        counter = self._counters.setdefault(claim.identity, _Counter(claim))
        counter.claim = claim
        window = window_at(claim.window, now_ms)
        share = counter.shares.pop(run_id, _Share(0.0, 0.0, epoch))
        own, others = share.held if self._holds(run_id, share.epoch) else 0.0, self._reserved(counter)
        before = counter.used(window.since)
        counter.add(window, grown(reservation.used, share.used))
        used = counter.used(window.since)
        held = allocate(reservation, used=used, own=own, others=others)
        counter.shares[run_id] = _Share(max(share.used, reservation.used), held or 0.0, epoch)
        return ReservationResult(
            claim=claim,
            granted=held is not None,
            held=held or 0.0,
            before=before,
            used=used,
            reserved=self._reserved(counter),
            resets_at=window.resets_at(counter.oldest(window.since)),
        )

    def _reserved(self, counter: _Counter) -> float:
        held = [share.held for id, share in counter.shares.items() if share.held and self._holds(id, share.epoch)]
        return round(sum(held), DIGITS)
