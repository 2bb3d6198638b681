"""The port to the record: sessions and their events, who owns their runs, and what people answered and ordered."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Protocol, TypeVar, runtime_checkable

from proctor.policies.events import Event, RecordPruned

from .budget_ledger import BudgetInfo, Reservation, ReservationResult
from .stored_types import (
    ANY_RUN,
    ApprovalAnswer,
    Block,
    Cancel,
    Command,
    LogEntry,
    Owner,
    Place,
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
        """Store events, in order and as one unit; returns them stamped with `seq` (per session, from 1,
        without gaps), whatever they had. On return they are durable. An event whose `event_id` is already
        stored in its session is not stored again: the stored one is returned in its place. Raises StoreError
        when the record they would be part of is not there any more: removed, replaced, cut short.

        `epoch` is that of the owner who writes. Events of a run that another epoch has claimed are refused,
        StoreError(kind="fenced"), and all of the unit with them. Refused as well is what a run does not admit:
        anything but answers to its approvals after its end, a second end among it (`run_over`), and the start of a
        call that is in flight, with the same tool and input (`call_started`).

        Events of one run have an identity as a unit: the owner, the run, and the `seq` that the first of them brings
        along. A unit of that identity is stored once: what the run has of it from that seq on is returned in its
        place, and the rest of it stored. Something else at a place that the owner has written is a `conflict`.

        It may be cancelled: what it was given is then stored as a unit or not at all.
        """
        ...

    def read(
        self, session_id: str, *, after: int = 0, run_id: str | None = None, newest_first: bool = False
    ) -> AsyncIterator[Event]:
        """The stored events of a session with seq > after, in order, or in the opposite one."""
        ...

    def log(
        self, *, after: int = 0, tenant: str | None = None, newest_first: bool = False
    ) -> AsyncIterator[LogEntry]:
        """The stored events of all sessions with position > after, in the order in which they were stored, or in the
        opposite one. What is not seen while it is read is stored at a higher position.
        """
        ...

    async def place(self) -> Place:
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
        """Register a run before it starts, and give it as it is stored; the same run_id again is
        StoreError(kind="run_exists").

        With an `epoch` it is claimed in the same step, or not registered at all: raises as `claim_run` does.
        """
        ...

    async def claim_run(self, run_id: str, *, epoch: int, lost: bool = False) -> RunInfo:
        """Let the owner of that epoch be the one who writes a run and, until the run is over, its session.

        One conditional write. To be started, a run that never was: one that nobody has claimed, or whose owner is
        gone, or that is this owner's. With `lost`, to be ended, one that was started and whose owner is gone, or
        that nobody claimed. Whoever had it is fenced from then on. Each owner that claims it to start it is counted
        in its `attempts`. Raises StoreError: `no_run`; `run_over`;
        `started`, it is not one to be started any more; `claimed`, an owner that is there has it; `session_busy`,
        another claimed run of its session is not over; `fenced`, no owner has the epoch.
        """
        ...

    async def release_run(self, run_id: str, *, epoch: int) -> None:
        """Undo the claim of a run that the owner of that epoch does not start after all: it is created, nobody has
        claimed it, and this owner is not counted in its `attempts`. Of any other run it changes nothing.
        """
        ...

    async def register(self, owner: Owner, *, lease_s: float) -> Owner:
        """Let an owner in; returns it with its epoch, and the latest command as `after`.

        It is gone `lease_s` seconds after it last renewed, by the store's clock, which no step of the wall clock
        moves; and at once where the store sees its process gone.
        """
        ...

    async def renew(self, epoch: int, *, lease_s: float) -> None:
        """Put the end of an owner's lease off. Raises StoreError(kind="fenced") for one that was released."""
        ...

    async def release(self, epoch: int) -> None:
        """The owner leaves; a run that it has not ended is lost."""
        ...

    async def lost_runs(self) -> list[RunInfo]:
        """The runs whose owner is gone and that are not over, oldest first; `created` ones were never started."""
        ...

    async def run(self, run_id: str) -> RunInfo | None:
        """A run with its status as the stored events have it, or None."""
        ...

    async def runs(
        self,
        *,
        limit: int = 100,
        session_id: str | None = None,
        before: str | None = None,
        where: RunFilter = ANY_RUN,
    ) -> list[RunInfo]:
        """Newest first; `before` a run: only older ones, none when there is no such run."""
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
        """Approvals, in the order they were requested, from the one behind number `after` on; all, or those that wait
        for an answer. What appended events say of approvals is part of them at once: `tool_approval_requested`
        with an `input_digest` asks for one, the others close it, and the end of a run withdraws those that wait,
        unless it was cancelled and they do not hold a call. Signals of calls that `ran` wait for nobody.
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
    """Orders to the owners of runs."""

    async def send_command(self, command: Cancel | Block | UnblockStarts) -> int:
        """Keep an order for the owners of runs, durable on return; returns its number, which rises."""
        ...

    async def blocks(self) -> list[Block]:
        """The blocks on starts that were not lifted, oldest first."""
        ...

    async def commands(self, *, after: int = 0) -> list[Command]:
        """Orders and answers with a number > after, in order."""
        ...

    async def last_command(self) -> int:
        """The number of the latest command; 0 without any."""
        ...


class BudgetLedger(Protocol):
    """The use of shared budgets by runs."""

    async def reserve(
        self, run_id: str, reservations: Sequence[Reservation], *, epoch: int
    ) -> list[ReservationResult]:
        """Reserve from shared budgets for a run in one conditional write; gives an answer to each, in order.

        What the run has used since its last reservation counts in the present window; what it wants reserved takes
        the place of what was, as far as there is enough left. What others have reserved counts
        while their run goes on, whether its owner is there or not; for a run that never started, as long as the owner
        that drew is there. A run without an owner has nothing set aside. Windows go by the store's clock. Raises
        StoreError: `no_run`; `run_over`; `fenced`, the run is another epoch's.
        """
        ...

    async def settle(self, run_id: str, used: Mapping[str, float], *, epoch: int) -> list[ReservationResult]:
        """Settle a run that reserves no more: it has `used` so much of each thing that budgets count, and nothing is
        reserved for it. Gives an answer for each budget that it used; done again it changes nothing. Raises
        StoreError as `reserve` does.
        """
        ...

    async def budgets(self) -> list[BudgetInfo]:
        """The shared budgets that were used, by name and key."""
        ...


class Maintenance(Protocol):
    """An operator's actions on the whole record."""

    async def prune(self, event: RecordPruned, *, up_to: int) -> RecordPruned | None:
        """Remove the record of a session, its events, runs and approvals, as one unit, and store `event` after it,
        completed with what was removed. None, and nothing is removed, where `up_to` is not the seq of its last event
        any more, or a run of it is not over.

        Such an event that is appended to a session without a record keeps the seq it has: what was removed elsewhere
        stays accounted for where the rest is brought to.
        """
        ...

    async def size(self) -> StoreSize:
        """How much is stored, and how much room it takes."""
        ...

    async def compact(self) -> None:
        """Give back unused room, as far as that delays nobody."""
        ...


@runtime_checkable
class Store(EventLog, RunRegistry, ApprovalStore, CommandQueue, BudgetLedger, Maintenance, Protocol):
    """A store of event logs. Every method can raise StoreError; nothing acknowledged is lost."""

    async def aclose(self) -> None:
        """Close the store; everything acknowledged is kept."""
        ...


T = TypeVar("T")
_PAGE = 500


@asynccontextmanager
async def closing(found: AsyncIterator[T]) -> AsyncGenerator[AsyncIterator[T]]:
    """The iterator of a store's `read` or `log`, closed when its reader leaves early: trio complains about a
    generator that is left open.
    """
    try:
        yield found
    finally:
        if isinstance(found, AsyncGenerator):
            await found.aclose()


async def all_runs(
    store: RunRegistry, *, session_id: str | None = None, where: RunFilter = ANY_RUN
) -> AsyncGenerator[RunInfo, None]:
    """The runs of `store`, or of one session (`session_id`), that meet all of `where`, newest first; those that come
    meanwhile are left out.

    Close it where you stop before the end: see `contextlib.aclosing`.
    """
    before: str | None = None
    while page := await store.runs(limit=_PAGE, session_id=session_id, before=before, where=where):
        for run in page:
            yield run
        before = page[-1].run_id
