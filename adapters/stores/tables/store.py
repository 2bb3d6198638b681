"""`TableStore`, a Store over a writing thread and reading connections, and its `Writer`."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial, wraps
from queue import SimpleQueue
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

import anyio
import anyio.to_thread

from proctor.policies.events import Event
from proctor.supervisor.errors import StoreError
from proctor.supervisor.ports.budget_ledger import BudgetInfo, Reservation, ReservationResult
from proctor.supervisor.ports.store import Hop, Notifier, current_hop, set_all
from proctor.supervisor.ports.stored_types import LogEntry

from . import budgets as shared
from . import claiming, queries, recording
from .batches import Batch
from .queries import ReaderPool

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
P = ParamSpec("P")


class Method(Protocol[P, T_co]):
    """The type of an `async def` of a store."""

    async def __call__(self, *args: P.args, **named: P.kwargs) -> T_co: ...


def _reads(query: Callable[Concatenate[Any, P], T]) -> Method[P, T]:
    """The method of a store that runs this query."""

    @wraps(query)
    async def method(store: TableStore, /, *args: P.args, **named: P.kwargs) -> T:
        return await store._readers.query(lambda connection: query(connection, *args, **named))

    return method  # type: ignore[return-value]  # bound, it has no `store`


def _writes(work: Callable[Concatenate[Any, P], T]) -> Method[P, T]:
    """The method of a store that does this work in a transaction."""

    @wraps(work)
    async def method(store: TableStore, /, *args: P.args, **named: P.kwargs) -> T:
        return await store._writer.do(lambda recorder, _: work(recorder, *args, **named))

    return method  # type: ignore[return-value]  # bound, it has no `store`


class TableStore(ABC):
    """The common part of every store in a database, which adds how it is opened, watched, made smaller and closed;
    `now_ms` gives the time for the windows of budgets.
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
        """Store events as one unit; see `Store.append`. If cancelled, all may be stored, or none."""
        self._check_open()
        if not events:
            return []
        batch = Batch(events)
        return await self._writer.do(
            lambda recorder, find_stored: recorder.append(batch, find_stored=find_stored, epoch=epoch), batch
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

    place = _reads(queries.latest_position)
    session = _reads(queries.session_info)
    run = _reads(queries.run_info)
    runs = _reads(queries.newest_runs)
    lost_runs = _reads(queries.lost_runs)
    create_run = _writes(claiming.create)
    claim_run = _writes(claiming.claim)
    release_run = _writes(claiming.release_run)
    register = _writes(claiming.register)
    renew = _writes(claiming.renew)
    release = _writes(claiming.release)
    approvals = _reads(recording.approvals_after)
    approval = _reads(recording.find_approval)
    answer = _writes(recording.answer)
    send_command = _writes(recording.keep)
    commands = _reads(recording.commands_after)
    last_command = _reads(recording.last_command)
    blocks = _reads(recording.blocks)
    prune = _writes(recording.prune)

    async def last_seq(self, session_id: str) -> int:
        """The seq of a session's latest event, 0 when it has none."""
        session = await self.session(session_id)
        return session.last_seq if session is not None else 0

    async def reserve(
        self, run_id: str, reservations: Sequence[Reservation], *, epoch: int
    ) -> list[ReservationResult]:
        """Reserve from shared budgets; see `Store.reserve`."""
        return await self._writer.do(
            lambda recorder, _: shared.reserve(recorder, run_id, reservations, epoch, self._now_ms)
        )

    async def settle(self, run_id: str, used: Mapping[str, float], *, epoch: int) -> list[ReservationResult]:
        """Settle a run's budgets; see `Store.settle`."""
        return await self._writer.do(lambda recorder, _: shared.settle(recorder, run_id, used, epoch, self._now_ms))

    async def budgets(self) -> list[BudgetInfo]:
        """The shared budgets that were used, by name and key."""
        return await self._readers.query(partial(shared.listed, now_ms=self._now_ms))

    async def wait(self, token: int, timeout_s: float) -> int:
        """Return when something was stored since `token` or the time is up; see `Store.wait`."""
        self._check_open()
        with await self._watching():
            return await self._notifier.wait(token, timeout_s)

    @abstractmethod
    async def _watching(self) -> AbstractContextManager[None]:
        """The context in which other processes' writes are noticed."""

    async def aclose(self) -> None:
        """Finish current work, then close the store and release waiting callers."""
        self._closed = True
        self._readers.close()
        await self._writer.aclose()  # last, as it may close the files

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError("the store is closed", kind="closed")
        self._writer.check_process()


RecorderT = TypeVar("RecorderT")


class Job(Generic[T]):
    """One write: `work(recorder, find_stored)` is called within a transaction, again if that must be redone. An
    append has its `batch`; `size` is the number of its events.
    """

    __slots__ = ("batch", "done", "error", "hop", "result", "size", "work")

    def __init__(self, work: Callable[[Any, bool], T], batch: Batch | None) -> None:
        self.work = work
        self.batch = batch
        self.size = 1 if batch is None else len(batch.events)
        self.hop: Hop = current_hop()
        self.done = anyio.Event()
        self.result: T | None = None
        self.error: Exception | None = None


class Writer(ABC, Generic[RecorderT]):
    """Owns the connection that writes. Each caller waits for its own job, so that the queue has at most one job of
    each.
    """

    conflict: ClassVar[type[Exception]]
    """Raised for an event that is stored already."""
    broken: ClassVar[tuple[type[Exception], ...]]
    """Errors that end a transaction; any other error belongs to its job."""

    def __init__(self, recorder: RecorderT, name: str, notifier: Notifier) -> None:
        self._recorder = recorder
        self._name = name
        self._notifier = notifier
        self._queue: SimpleQueue[Job[Any] | None] = SimpleQueue()  # None: time to poll
        self._held_over: list[Job[Any]] = []
        self._lock = threading.Lock()
        self._stopping = False
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="proctor-store", daemon=True)
        self._thread.start()

    async def do(self, work: Callable[[RecorderT, bool], T], batch: Batch | None = None) -> T:
        """Run a job; returns once it is durable. If cancelled, it may still be written."""
        self.check_process()
        job = Job(work, batch)
        with self._lock:
            if self._stopping:
                raise StoreError("the store is closed", kind="closed")
            self._queue.put(job)
        await job.done.wait()
        if job.error is not None:
            raise job.error
        return job.result  # type: ignore[return-value]  # set by the thread before `done`

    def check_process(self) -> None:
        """Raises StoreError in a process forked from the opener, as its writing thread does not exist there."""
        if os.getpid() != self._pid:
            raise StoreError(
                f"store `{self._name}` was opened before this process was forked; open it in this process",
                kind="forked",
            )

    async def aclose(self) -> None:
        """Write what is queued, close the connection, end the thread."""
        with self._lock:
            self._stopping = True
            self._queue.put(None)  # INVARIANT: no job comes after `_stopping` is set
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._join)

    def _join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        ended = False
        while not ended:
            if jobs := self._next_jobs():
                self._write(jobs)
            else:
                self._poll()
            ended = self._stopping and not self._held_over and self._queue.empty()
        self._leave()
        self._notifier.notify()

    def _write(self, jobs: list[Job[Any]]) -> None:
        error = self._transact(jobs, find_stored=False)
        if isinstance(error, self.conflict):
            error = self._transact(jobs, find_stored=True)
        if error is not None and len(jobs) > 1 and self._is_of_one_job(error):
            for job in jobs:  # an error of one job does not affect the others
                self._fail([job], self._transact([job], find_stored=True))
        else:
            self._fail(jobs, error)
        set_all((job.hop, job.done) for job in jobs)
        self._notifier.notify()
        if any(job.error is None for job in jobs):
            self._notify_others()

    def _work(self, job: Job[Any], find_stored: bool) -> None:
        job.error = None
        try:
            job.result = job.work(self._recorder, find_stored)
        except self.broken:
            raise
        except StoreError as error:
            job.error = error
        except Exception as error:  # a bug, or no memory: the others' jobs and this thread must survive it
            job.error = StoreError(f"cannot be stored: {type(error).__name__}: {error}", kind="bad_record")

    def _fail(self, jobs: list[Job[Any]], error: Exception | None) -> None:
        if error is not None:
            for job in jobs:
                job.error = self._store_error(error)

    @abstractmethod
    def _next_jobs(self) -> list[Job[Any]]:
        """Wait for the jobs of one transaction; none when it is time to poll."""

    @abstractmethod
    def _transact(self, jobs: list[Job[Any]], *, find_stored: bool) -> Exception | None:
        """Write jobs in one transaction; returns the error if none of them is stored."""

    @abstractmethod
    def _is_of_one_job(self, error: Exception) -> bool:
        """Whether an error concerns one job's data, not the store."""

    @abstractmethod
    def _store_error(self, error: Exception) -> StoreError:
        """The store's error, as a StoreError."""

    @abstractmethod
    def _leave(self) -> None:
        """Close the connection, at the end."""

    def _poll(self) -> None:
        """Poll for other processes' writes, if the connection shows them."""

    def _notify_others(self) -> None:
        """Notify other processes of a write, if they would not see it."""
