"""The port to the record: sessions and their events, the owners of runs, and people's answers and commands."""

import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import anyio
from sniffio import current_async_library

from proctor.policies.events import Event, RecordPruned

from ..errors import StoreError
from .budget_ledger import BudgetInfo, Reservation, ReservationResult
from .stored_types import (
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


class EventLog(Protocol):
    """The events, in the order in which they were stored."""

    async def append(self, events: Sequence[Event], *, epoch: int = 0) -> list[Event]:
        """Store events durably, in order, as one unit; returns them stamped with `seq` (per session, from 1, without
        gaps). An event whose `event_id` is already stored in its session is not stored again: the stored one is
        returned. Raises StoreError if the record was removed, replaced or cut short.

        `epoch` is the writing owner's. Rejected, with the whole unit, are events of a run that another epoch has
        claimed (`fenced`); events after a run's end, except answers to its approvals (`run_over`); and the start of
        a call in flight with the same tool and input (`call_started`).

        Events of one run are identified as a unit by the owner, the run, and the `seq` of the first as given. A
        repeated unit is stored once: what the run has of it is returned, and only the rest stored. If the owner has
        written something else there, that is a `conflict`.

        If cancelled, it has stored the whole unit or nothing.
        """
        ...

    def read(
        self, session_id: str, *, after: int = 0, run_id: str | None = None, newest_first: bool = False
    ) -> AsyncIterator[Event]:
        """The stored events of a session with seq > after, in order, or newest first."""
        ...

    def log(
        self, *, after: int = 0, tenant: str | None = None, newest_first: bool = False
    ) -> AsyncIterator[LogEntry]:
        """The stored events of all sessions with position > after, in the order they were stored, or newest first.
        Events stored during the read and not seen have a higher position.
        """
        ...

    async def place(self) -> LogPosition:
        """After the latest stored event."""
        ...

    async def last_seq(self, session_id: str) -> int:
        """The seq of a session's latest event; 0 without any."""
        ...

    async def wait(self, token: int, timeout_s: float) -> int:
        """Return when something was stored since `token` (by any process) or the time is up; the returned
        token is for the next wait. Token 0 returns at once.
        """
        ...


class RunRegistry(Protocol):
    """The runs and sessions, and who owns a run."""

    async def create_run(self, run: RunInfo, *, epoch: int = 0) -> RunInfo:
        """Register a run before it starts; returns it as stored. Raises StoreError(kind="run_exists") for a second
        run with its id.

        With an `epoch` it is claimed in the same step, or not registered: raises as `claim_run` does.
        """
        ...

    async def claim_run(self, run_id: str, *, epoch: int, lost: bool = False) -> RunInfo:
        """Make the owner of that epoch the only writer of a run and, until the run is over, of its session, in one
        conditional write. An earlier owner is fenced from then on.

        Without `lost` the run is claimed to be started: it never was, and nobody has claimed it, or this owner has,
        or its owner is gone. `attempts` counts the owners that claimed it so. With `lost` it is claimed to be ended:
        it was started and its owner is gone, or nobody claimed it.

        Raises StoreError: `no_run`; `run_over`; `started`, it was started already; `claimed`, it has a live owner;
        `session_busy`, another claimed run of its session is not over; `fenced`, no owner has the epoch.
        """
        ...

    async def release_run(self, run_id: str, *, epoch: int) -> None:
        """Undo the claim of a run that the owner of that epoch will not start: it is `created` again, unclaimed, and
        this owner does not count in its `attempts`. No effect on any other run.
        """
        ...

    async def register(self, owner: Owner, *, lease_s: float) -> Owner:
        """Register an owner; returns it with its epoch, and the latest command as `after`.

        It is gone `lease_s` seconds after it last renewed, by the store's monotonic clock, and at once if the store
        sees that its process has ended.
        """
        ...

    async def renew(self, epoch: int, *, lease_s: float) -> None:
        """Extend an owner's lease. Raises StoreError(kind="fenced") for one that was released."""
        ...

    async def release(self, epoch: int) -> None:
        """Release an owner: the runs that it has not ended are lost."""
        ...

    async def lost_runs(self) -> list[RunInfo]:
        """The runs whose owner is gone and that are not over, oldest first; `created` ones were never started."""
        ...

    async def run(self, run_id: str) -> RunInfo | None:
        """A run with its status by the stored events, or None."""
        ...

    async def runs(
        self,
        *,
        limit: int = 100,
        session_id: str | None = None,
        before: str | None = None,
        where: RunFilter = ANY_RUN,
    ) -> list[RunInfo]:
        """Newest first; `before` a run: only older ones, none when there is no such run. One that cannot be read is
        among them, and says so.
        """
        ...

    async def session(self, session_id: str) -> SessionInfo | None:
        """A session as a list shows it, or None."""
        ...


class ApprovalStore(Protocol):
    """The requests for approval, and their answers."""

    async def approvals(
        self,
        *,
        waiting: bool = True,
        run_id: str | None = None,
        session_id: str | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> list[StoredApproval]:
        """Approvals in the order they were requested, those after number `after`; only pending ones if `waiting`.

        They follow from the appended events, at once: `tool_approval_requested` with an `input_digest` opens one, the
        other approval events close it, and a run's end withdraws pending ones, unless it was cancelled and they hold
        no call. A request about a call that `ran` is not pending. One that cannot be read is listed without its call,
        and its reason says so.
        """
        ...

    async def approval(self, approval_id: str) -> StoredApproval | None:
        """An approval with what became of it, or None."""
        ...

    async def answer(
        self, approval_id: str, given: ApprovalAnswer, *, at: datetime, event: Event | None = None
    ) -> StoredApproval:
        """Answer an approval that is `requested`; of several answers one counts. One conditional write.

        It becomes a command to the owner of the run; with an `event`, that is appended instead, as one unit
        with the answer. Raises StoreError: `no_approval`; `answered`, for one that is closed, and says how;
        `other_input`, for an answer with another `input_digest`; `not_allowed`, by somebody who may not answer or for
        more than a yes may cover (`approvers`, `started_by` and `scope` of the request).
        """
        ...


class CommandQueue(Protocol):
    """Commands to the owners of runs."""

    async def send_command(self, command: Cancel | Block | UnblockStarts) -> int:
        """Store a command to the owners of runs durably; returns its number, which rises."""
        ...

    async def blocks(self) -> list[Block]:
        """The current blocks on starts, oldest first."""
        ...

    async def commands(self, *, after: int = 0) -> list[Command]:
        """Commands with a number > after, in order, up to one that cannot be read; if that is the first, raises
        StoreError(kind="no_command").
        """
        ...

    async def last_command(self) -> int:
        """The number of the latest command; 0 without any."""
        ...


class BudgetLedger(Protocol):
    """The use of shared budgets by runs."""

    async def reserve(
        self, run_id: str, reservations: Sequence[Reservation], *, epoch: int
    ) -> list[ReservationResult]:
        """Reserve from shared budgets for a run in one conditional write; returns an answer to each, in order.

        What the run has used since its last reservation counts in the current window; the new reservation replaces
        the old one, as far as enough is left. Other runs' reservations count while active, even without their
        owner; of runs that never started, while the owner that reserved lives. A run without an owner reserves
        nothing. Windows go by the store's clock.

        Raises StoreError: `no_run`; `run_over`; `fenced`, another epoch has claimed the run.
        """
        ...

    async def settle(self, run_id: str, used: Mapping[str, float], *, epoch: int) -> list[ReservationResult]:
        """Settle a run's budgets: it has `used` so much of each thing that budgets count, and nothing stays reserved.
        Returns an answer for each budget that it used; repeated, it changes nothing. Raises as `reserve` does.
        """
        ...

    async def budgets(self) -> list[BudgetInfo]:
        """The shared budgets that were used, by name and key."""
        ...


class Maintenance(Protocol):
    """An operator's actions on the whole record."""

    async def prune(self, event: RecordPruned, *, up_to: int) -> RecordPruned | None:
        """Remove a session's events, runs and approvals, as one unit, and store `event` after them, completed with
        what was removed. Returns None, with nothing removed, if `up_to` is not the seq of its last event any more or
        a run of it is not over.

        Appended to a session without events, as by an import, such an event keeps its seq.
        """
        ...

    async def size(self) -> StoreSize:
        """How much is stored, and its size on disk."""
        ...

    async def compact(self) -> None:
        """Free unused space, as far as that delays nobody."""
        ...


@runtime_checkable
class Store(EventLog, RunRegistry, ApprovalStore, CommandQueue, BudgetLedger, Maintenance, Protocol):
    """A store of event logs, with the methods of `EventLog`, `RunRegistry`, `ApprovalStore`, `CommandQueue`,
    `BudgetLedger` and `Maintenance`. Every method can raise StoreError; nothing acknowledged is lost.
    """

    async def aclose(self) -> None:
        """Close the store; everything acknowledged is kept."""
        ...


T = TypeVar("T")
_PAGE = 500
Hop: TypeAlias = Callable[[Callable[[], Any]], Any]
"""Runs a callable soon in an event loop, called from any thread; raises RuntimeError if the loop is gone."""


def current_hop() -> Hop:
    """A function that runs a callable soon in this event loop, from any thread."""
    if current_async_library() == "trio":  # `trio` may stand in sys.modules half imported by another thread
        from trio.lowlevel import current_trio_token

        return current_trio_token().run_sync_soon
    from asyncio import get_running_loop

    return get_running_loop().call_soon_threadsafe


def set_all(waiting: Iterable[tuple[Hop, anyio.Event]]) -> None:
    """Set events from any thread, with one hop for each event loop."""
    by_loop: dict[Hop, list[anyio.Event]] = {}
    for hop, event in waiting:
        by_loop.setdefault(hop, []).append(event)
    for hop, events in by_loop.items():
        with suppress(RuntimeError):  # the loop has ended, and whoever waited with it
            hop(partial(_set_here, events))


def _set_here(events: list[anyio.Event]) -> None:
    for event in events:
        with suppress(RuntimeError):  # that of a loop which was closed in this thread
            event.set()


class Notifier:
    """Counts what was stored; notified from any thread, waited for in any event loop."""

    def __init__(self) -> None:
        self.version = 1
        self._lock = threading.Lock()
        self._waiting: list[tuple[int, Hop, anyio.Event]] = []

    def notify(self) -> None:
        """Wake all waiters."""
        with self._lock:
            self.version += 1
            waiting, self._waiting = self._waiting, []
        here = threading.get_ident()
        set_all((hop, changed) for thread, hop, changed in waiting if thread != here)
        _set_here([changed for thread, _, changed in waiting if thread == here])

    async def wait(self, token: int, timeout_s: float) -> int:
        """Return the next token once something was stored since `token`, or the time is up."""
        entry = (threading.get_ident(), current_hop(), anyio.Event())
        with self._lock:
            is_news = token != self.version
            if not is_news:
                self._waiting.append(entry)
        try:
            if is_news:
                await anyio.lowlevel.checkpoint()
            else:
                with anyio.move_on_after(timeout_s):
                    await entry[2].wait()
        finally:
            with self._lock:
                if entry in self._waiting:
                    self._waiting.remove(entry)
        return self.version


PAUSE_S = 0.05
"""The shortest time between two polls of a busy store."""


POLL_S = 0.5
"""How long whoever waits for something in a store waits before it looks again: what a store tells nobody of, such as
the end of a lease, is seen then.
"""


async def wait_again(store: EventLog, token: int, timeout_s: float = POLL_S) -> int:
    """`store.wait` for who looks at the store again and again: pauses first, except at token 0, as in a busy store
    something is stored all the time.
    """
    if token:
        await anyio.sleep(PAUSE_S)
    return await store.wait(token, timeout_s)


@asynccontextmanager
async def closing(found: AsyncIterator[T]) -> AsyncGenerator[AsyncIterator[T]]:
    """The iterator of a store's `read` or `log`, closed also if its reader stops early, as trio requires."""
    try:
        yield found
    finally:
        if isinstance(found, AsyncGenerator):
            await found.aclose()


async def all_commands(store: CommandQueue, *, after: int) -> list[Command]:
    """Every command with a number > after. Raises StoreError if one of them cannot be read."""
    found: list[Command] = []
    while more := await store.commands(after=found[-1].number if found else after):
        found += more
    return found


async def all_runs(
    store: RunRegistry, *, session_id: str | None = None, where: RunFilter = ANY_RUN
) -> AsyncGenerator[RunInfo, None]:
    """The runs of `store`, or of one session (`session_id`), that match `where`, newest first, without those created
    meanwhile. Close it if you stop early: see `contextlib.aclosing`.
    """
    seen: dict[str, None] = {}
    before: str | None = None
    while True:
        page = await store.runs(limit=_PAGE, session_id=session_id, before=before, where=where)
        for run in page:
            if run.run_id not in seen:
                seen[run.run_id] = None
                yield run
        if page:
            before = page[-1].run_id
        elif before is None or await _is_stored(store, before):
            return
        else:  # it was pruned meanwhile: on behind the latest that is still there
            earlier = reversed(seen)
            before = next(earlier)
            while before is not None and not await _is_stored(store, before):
                before = next(earlier, None)


async def _is_stored(store: RunRegistry, run_id: str) -> bool:
    """Whether the run is there, be it one that cannot be read."""
    try:
        return await store.run(run_id) is not None
    except StoreError as error:
        if error.kind != "corrupt":
            raise
        return True
