"""The Store over a thread that writes and connections that read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial
from typing import Any, Self

import anyio

from proctor.policies.events import Event, RecordPruned
from proctor.supervisor.errors import StoreError
from proctor.supervisor.ports.budget_ledger import BudgetInfo, Draw, Drawn
from proctor.supervisor.ports.stored_types import (
    ANY_RUN,
    ApprovalAnswer,
    Block,
    Cancel,
    Instruction,
    Lift,
    LogEntry,
    Owner,
    Place,
    RunFilter,
    RunInfo,
    SessionInfo,
    StoredApproval,
)

from ...kit.tasks import Notifier
from . import budgets as shared
from . import claiming, queries, recording
from .queries import ReaderPool
from .transactions import Batch
from .writer import Writer


class TableStore(ABC):
    """The common part of every store in a database. Each database adds how it is opened, watched, made smaller and
    closed.

    Args:
        writer: the thread that writes.
        readers: what answers queries.
        notifier: notified when something was stored.
        now_ms: the time by which windows of budgets go.
    """

    def __init__(
        self, writer: Writer[Any], readers: ReaderPool[Any], notifier: Notifier, now_ms: shared.Clock
    ) -> None:
        self._writer = writer
        self._readers = readers
        self._notifier = notifier
        self._now_ms = now_ms
        self._closed = False

    async def append(self, events: Sequence[Event], *, epoch: int = 0) -> list[Event]:
        """Store events as one unit; see `Store.append`. If cancelled, they may still be stored, all of them
        or none.
        """
        self._check_open()
        if not events:
            return []
        batch = Batch(events)
        return await self._writer.do(
            lambda recorder, look_up: recorder.append(batch, look_up=look_up, epoch=epoch), batch
        )

    async def read(
        self, session_id: str, *, after: int = 0, run_id: str | None = None, newest_first: bool = False
    ) -> AsyncIterator[Event]:
        """The stored events of a session with seq > after, in order; see `Store.read`."""
        how: dict[str, Any] = {"run_id": run_id, "newest_first": newest_first}
        while page := await self._readers.query(queries.events_page(session_id, after, **how)):
            for event in page:
                yield event
            if newest_first:
                how["before"] = page[-1].seq
            else:
                after = page[-1].seq

    async def log(
        self, *, after: int = 0, tenant: str | None = None, newest_first: bool = False
    ) -> AsyncIterator[LogEntry]:
        """The stored events of all sessions; see `Store.log`."""
        before: int | None = None
        while page := await self._readers.query(queries.log_page(after, before, tenant, newest_first)):
            for entry in page:
                yield entry
            after, before = (after, page[-1].position) if newest_first else (page[-1].position, None)

    async def place(self) -> Place:
        """After the latest stored event."""
        return await self._readers.query(queries.latest_place)

    async def last_seq(self, session_id: str) -> int:
        """The seq of a session's latest event, 0 when it has none."""
        session = await self.session(session_id)
        return session.last_seq if session is not None else 0

    async def create_run(self, run: RunInfo, *, epoch: int = 0) -> RunInfo:
        """Register a run before it starts; see `Store.create_run`."""
        return await self._writer.do(lambda recorder, _: claiming.create(recorder, run, epoch))

    async def claim_run(self, run_id: str, *, epoch: int, lost: bool = False) -> RunInfo:
        """Make an owner the only writer of a run; see `Store.claim_run`."""
        return await self._writer.do(lambda recorder, _: claiming.claim(recorder, run_id, epoch, lost=lost))

    async def release_run(self, run_id: str, *, epoch: int) -> None:
        """Undo the claim of a run that does not start after all; see `Store.release_run`."""
        await self._writer.do(lambda recorder, _: claiming.release_run(recorder, run_id, epoch))

    async def register(self, owner: Owner, *, lease_s: float) -> Owner:
        """Let an owner in; returns it with its epoch."""
        return await self._writer.do(lambda recorder, _: claiming.register(recorder, owner, lease_s))

    async def renew(self, epoch: int, *, lease_s: float) -> None:
        """Put the end of an owner's lease off; see `Store.renew`."""
        await self._writer.do(lambda recorder, _: claiming.renew(recorder, epoch, lease_s))

    async def release(self, epoch: int) -> None:
        """The owner leaves; a run that it has not ended is lost."""
        await self._writer.do(lambda recorder, _: claiming.release(recorder, epoch))

    async def lost_runs(self) -> list[RunInfo]:
        """The runs whose owner is gone and that are not over; see `Store.lost_runs`."""
        return await self._readers.query(queries.lost_runs)

    async def run(self, run_id: str) -> RunInfo | None:
        """A run with its status as the stored events have it, or None."""
        return await self._readers.query(lambda connection: queries.run_info(connection, run_id))

    async def runs(
        self,
        *,
        limit: int = 100,
        session_id: str | None = None,
        before: str | None = None,
        where: RunFilter = ANY_RUN,
    ) -> list[RunInfo]:
        """Newest first; see `Store.runs`."""
        return await self._readers.query(lambda found: queries.newest_runs(found, limit, session_id, before, where))

    async def session(self, session_id: str) -> SessionInfo | None:
        """A session, or None."""
        return await self._readers.query(lambda connection: queries.session_info(connection, session_id))

    async def approvals(
        self,
        *,
        waiting: bool = True,
        run_id: str | None = None,
        session_id: str | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> list[StoredApproval]:
        """Approvals, in the order they were requested; see `Store.approvals`."""
        of = partial(recording.approvals_after, waiting=waiting, run_id=run_id, session_id=session_id)
        return await self._readers.query(partial(of, after=after, limit=limit))

    async def approval(self, approval_id: str) -> StoredApproval | None:
        """An approval, or None."""
        return await self._readers.query(lambda connection: recording.find_approval(connection, approval_id))

    async def answer(
        self, approval_id: str, given: ApprovalAnswer, *, at: datetime, event: Event | None = None
    ) -> StoredApproval:
        """Answer an approval, if nobody has; see `Store.answer`."""
        batch = None if event is None else Batch([event])
        return await self._writer.do(lambda recorder, _: recording.answer(recorder, approval_id, given, at, batch))

    async def instruct(self, instruction: Cancel | Block | Lift) -> int:
        """Keep an order for the owners of runs; returns its number."""
        return await self._writer.do(lambda recorder, _: recording.keep(recorder, instruction))

    async def blocks(self) -> list[Block]:
        """The blocks on starts that were not lifted, oldest first."""
        return await self._readers.query(recording.blocks)

    async def instructions(self, *, after: int = 0) -> list[Instruction]:
        """Orders and answers with a number > after, in order."""
        return await self._readers.query(lambda connection: recording.instructions_after(connection, after))

    async def last_instruction(self) -> int:
        """The number of the latest, 0 when there is none."""
        return await self._readers.query(recording.last_instruction)

    async def reserve(self, run_id: str, draws: Sequence[Draw], *, epoch: int) -> list[Drawn]:
        """Draw on shared budgets; see `Store.reserve`."""
        return await self._writer.do(lambda recorder, _: shared.reserve(recorder, run_id, draws, epoch, self._now_ms))

    async def settle(self, run_id: str, used: Mapping[str, float], *, epoch: int) -> list[Drawn]:
        """A run draws no more; see `Store.settle`."""
        return await self._writer.do(lambda recorder, _: shared.settle(recorder, run_id, used, epoch, self._now_ms))

    async def budgets(self) -> list[BudgetInfo]:
        """The shared budgets that were drawn on, by name and key."""
        return await self._readers.query(partial(shared.listed, now_ms=self._now_ms))

    async def prune(self, event: RecordPruned, *, up_to: int) -> RecordPruned | None:
        """Remove the record of a session; see `Store.prune`."""
        return await self._writer.do(lambda recorder, _: recording.prune(recorder, event, up_to))

    async def wait(self, token: int, timeout_s: float) -> int:
        """Return when something was stored since `token` or the time is up; see `Store.wait`."""
        self._check_open()
        with await self._watching(), self._notifier.listening(token) as notified:
            if notified is None:
                await anyio.lowlevel.checkpoint()
            else:
                with anyio.move_on_after(timeout_s):
                    await notified.wait()
        return self._notifier.version

    @abstractmethod
    async def _watching(self) -> AbstractContextManager[None]:
        """The context in which other processes' writes are noticed."""

    async def aclose(self) -> None:
        """Finish what was begun, then refuse everything; whoever waits is released."""
        self._closed = True
        self._readers.close()
        await self._writer.aclose()  # last, as it may be what gives up the files

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError("the store is closed", kind="closed")
        self._writer.check_process()
