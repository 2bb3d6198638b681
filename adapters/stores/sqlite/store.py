"""The Store in one SQLite file."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel

from proctor.policies.stream.events import Event, RecordPruned
from proctor.supervisor.errors import StoreError, UsageError
from proctor.supervisor.ports.facts import (
    ANY_RUN,
    ApprovalAnswer,
    LogEntry,
    Owner,
    Place,
    RunFilter,
    RunInfo,
    SessionInfo,
    StoredApproval,
    StoreSize,
)
from proctor.supervisor.ports.ledger import BudgetInfo, Draw, Drawn
from proctor.supervisor.ports.orders import Block, Cancel, Instruction, Lift

from ..wakeups import Bell
from .file.opening import open_for_writing
from .file.reading import Readers
from .file.writing import SQLiteWriter
from .statements import budgets as shared
from .statements import claiming, desk, pruning, queries
from .statements.log import latest_place, log_page
from .statements.rows import Batch

_BETWEEN_STEPS_S = 0.01
_SYNCHRONOUS = ("FULL", "EXTRA", "NORMAL", "OFF")


class SQLiteStore:
    """Keeps the record in one file, which any number of processes on this machine may share.

    The file is opened, created or migrated here and now; a file that is not a store is left as it is.

    Args:
        path: the file; its directory must exist.
        synchronous: `FULL` (durable over a loss of power), `EXTRA`, `NORMAL` or `OFF` (durable over the
            death of this process only).
        busy_timeout_s: seconds to wait for another process that is writing.
        max_bytes: refuse to store more once the file is this large.
        wall_clock: the time by which windows of budgets go, in seconds since the epoch.

    Raises:
        StoreError: the file cannot be used; `kind` says why.
        UsageError: an argument makes no sense.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: str = "FULL",
        busy_timeout_s: float = 10.0,
        max_bytes: int | None = None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        if synchronous.upper() not in _SYNCHRONOUS:
            raise UsageError(f"`synchronous` is one of {', '.join(_SYNCHRONOUS)}, not `{synchronous}`")
        if not isinstance(path, str | os.PathLike):
            raise UsageError(f"`path` is a value of type `{type(path).__name__}`, not the name of a file")
        if os.fspath(path) in ("", ":memory:"):
            raise UsageError("a SQLite store needs a file; use MemoryStore to keep nothing")
        self.path = Path(path)
        connection = open_for_writing(
            self.path,
            synchronous=synchronous.upper(),
            busy_timeout_s=busy_timeout_s,
            max_bytes=max_bytes,
        )
        self._bell = Bell()
        self._writer = SQLiteWriter(connection, self.path, self._bell)
        self._readers = Readers(self.path, busy_timeout_s=busy_timeout_s, check=self._writer.check_process)
        self._wall_clock = wall_clock
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
            lambda recorder, look_up: recorder.append(batch, look_up=look_up, epoch=epoch), len(events)
        )

    async def read(
        self, session_id: str, *, after: int = 0, run_id: str | None = None, newest_first: bool = False
    ) -> AsyncIterator[Event]:
        """The stored events of a session with seq > after, in order; see `Store.read`."""
        how: dict[str, Any] = {"run_id": run_id, "newest_first": newest_first}
        while page := await self._readers.ask(queries.events_page(session_id, after, **how)):
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
        while page := await self._readers.ask(log_page(after, before, tenant, newest_first)):
            for entry in page:
                yield entry
            after, before = (after, page[-1].position) if newest_first else (page[-1].position, None)

    async def place(self) -> Place:
        """After the latest stored event."""
        return await self._readers.ask(latest_place)

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
        return await self._readers.ask(queries.lost_runs)

    async def run(self, run_id: str) -> RunInfo | None:
        """A run with its status as the stored events have it, or None."""
        return await self._readers.ask(lambda connection: queries.run_info(connection, run_id))

    async def runs(
        self,
        *,
        limit: int = 100,
        session_id: str | None = None,
        before: str | None = None,
        where: RunFilter = ANY_RUN,
    ) -> list[RunInfo]:
        """Newest first; see `Store.runs`."""
        return await self._readers.ask(lambda found: queries.newest_runs(found, limit, session_id, before, where))

    async def session(self, session_id: str) -> SessionInfo | None:
        """A session, or None."""
        return await self._readers.ask(lambda connection: queries.session_info(connection, session_id))

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
        of = partial(desk.approvals_after, waiting=waiting, run_id=run_id, session_id=session_id)
        return await self._readers.ask(partial(of, after=after, limit=limit))

    async def approval(self, approval_id: str) -> StoredApproval | None:
        """An approval, or None."""
        return await self._readers.ask(lambda connection: desk.find_approval(connection, approval_id))

    async def answer(
        self, approval_id: str, given: ApprovalAnswer, *, at: datetime, event: Event | None = None
    ) -> StoredApproval:
        """Answer an approval, if nobody has; see `Store.answer`."""
        batch = None if event is None else Batch([event])
        return await self._writer.do(lambda recorder, _: recorder.answer(approval_id, given, at, batch))

    async def instruct(self, instruction: Cancel | Block | Lift) -> int:
        """Keep an order for the owners of runs; returns its number."""
        return await self._writer.do(lambda recorder, _: desk.keep(recorder.execute, instruction))

    async def blocks(self) -> list[Block]:
        """What blocks starts and was not lifted, oldest first."""
        return await self._readers.ask(desk.blocks)

    async def instructions(self, *, after: int = 0) -> list[Instruction]:
        """Orders and answers with a number > after, in order."""
        return await self._readers.ask(lambda connection: desk.instructions_after(connection, after))

    async def last_instruction(self) -> int:
        """The number of the latest, 0 when there is none."""
        return await self._readers.ask(desk.last_instruction)

    async def reserve(self, run_id: str, draws: Sequence[Draw], *, epoch: int) -> list[Drawn]:
        """Draw on shared budgets; see `Store.reserve`."""
        now_ms = round(self._wall_clock() * 1000)
        return await self._writer.do(lambda recorder, _: shared.reserve(recorder, run_id, draws, epoch, now_ms))

    async def settle(self, run_id: str, used: Mapping[str, float], *, epoch: int) -> list[Drawn]:
        """A run draws no more; see `Store.settle`."""
        now_ms = round(self._wall_clock() * 1000)
        return await self._writer.do(lambda recorder, _: shared.settle(recorder, run_id, used, epoch, now_ms))

    async def budgets(self) -> list[BudgetInfo]:
        """The shared budgets that were drawn on, by name and key."""
        now_ms = round(self._wall_clock() * 1000)
        return await self._readers.ask(lambda connection: shared.listed(connection, now_ms))

    async def prune(self, event: RecordPruned, *, up_to: int) -> RecordPruned | None:
        """Remove the record of a session; see `Store.prune`."""
        return await self._writer.do(lambda recorder, _: pruning.prune(recorder, event, up_to))

    async def size(self) -> StoreSize:
        """How much is stored; see `Store.size`."""
        return await self._readers.ask(pruning.size)

    async def compact(self) -> None:
        """Give room back step by step, with time for others to write between; a file made by an older version is
        written anew once, while no run goes on.
        """
        more = True
        while more:
            more = await self._readers.alone(pruning.give_back)
            await anyio.sleep(_BETWEEN_STEPS_S)

    async def wait(self, token: int, timeout_s: float) -> int:
        """Return when something was stored since `token` or the time is up; see `Store.wait`.

        What other processes store is seen within a twentieth of a second.
        """
        self._check_open()
        with self._writer.watching(), self._bell.listening(token) as rung:
            if rung is None:
                await anyio.lowlevel.checkpoint()
            else:
                with anyio.move_on_after(timeout_s):
                    await rung.wait()
        return self._bell.version

    async def aclose(self) -> None:
        """Finish what was begun, then refuse everything; whoever waits is released."""
        self._closed = True
        self._readers.close()
        await self._writer.aclose()  # last, as only it can bring the log's pages into the file

    async def __aenter__(self) -> SQLiteStore:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError("the store is closed", kind="closed")
        self._writer.check_process()
