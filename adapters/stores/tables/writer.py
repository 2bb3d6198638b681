"""The one thread that writes: many appends become one transaction, each acknowledged after its commit."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, ClassVar, Generic, TypeVar

import anyio
import anyio.to_thread

from proctor.supervisor.errors import StoreError

from ...kit.tasks import Hop, Notifier, current_hop, set_all
from .transactions import Batch

T = TypeVar("T")
RecorderT = TypeVar("RecorderT")


class Job(Generic[T]):
    """One thing to write: `work(recorder, look_up)` is called within a transaction, again if it must be redone.
    What appends has its `batch`.
    """

    __slots__ = ("batch", "done", "error", "hop", "result", "weight", "work")

    def __init__(self, work: Callable[[Any, bool], T], batch: Batch | None) -> None:
        self.work = work
        self.batch = batch
        self.weight = 1 if batch is None else len(batch.events)
        self.hop: Hop = current_hop()
        self.done = anyio.Event()
        self.result: T | None = None
        self.error: Exception | None = None


class Writer(ABC, Generic[RecorderT]):
    """Owns the connection that writes. Every producer waits for its own job, so the queue holds no more than one job
    each.

    Args:
        recorder: what a job writes with.
        name: the store's, as it is shown.
        notifier: notified when something was stored.
    """

    conflict: ClassVar[type[Exception]]
    """Raised for an event that is stored already."""
    broken: ClassVar[tuple[type[Exception], ...]]
    """Errors that end a transaction; any other error of a job is the job's own."""

    def __init__(self, recorder: RecorderT, name: str, notifier: Notifier) -> None:
        self._recorder = recorder
        self._name = name
        self._notifier = notifier
        self._queue: SimpleQueue[Job[Any] | None] = SimpleQueue()  # None: look around
        self._held_over: list[Job[Any]] = []
        self._lock = threading.Lock()
        self._stopping = False
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="proctor-store", daemon=True)
        self._thread.start()

    async def do(self, work: Callable[[RecorderT, bool], T], batch: Batch | None = None) -> T:
        """Have something written; returns once it is durable. If cancelled, it may still be written."""
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
        """Raises StoreError in a process forked from the one that opened the store: the thread is not in it."""
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
                self._look()
            ended = self._stopping and not self._held_over and self._queue.empty()
        self._leave()
        self._notifier.notify()

    def _write(self, jobs: list[Job[Any]]) -> None:
        error = self._transact(jobs, look_up=False)
        if isinstance(error, self.conflict):
            error = self._transact(jobs, look_up=True)
        if error is not None and len(jobs) > 1 and self._is_of_one_job(error):
            for job in jobs:  # the others need not suffer
                self._fail([job], self._transact([job], look_up=True))
        else:
            self._fail(jobs, error)
        set_all((job.hop, job.done) for job in jobs)
        self._notifier.notify()
        if any(job.error is None for job in jobs):
            self._tell()

    def _work(self, job: Job[Any], look_up: bool) -> None:
        job.error = None
        try:
            job.result = job.work(self._recorder, look_up)
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
        """Jobs for one transaction, which are waited for; none when it is time to look around."""

    @abstractmethod
    def _transact(self, jobs: list[Job[Any]], *, look_up: bool) -> Exception | None:
        """Write jobs in one transaction; returns the error after which none of them is stored."""

    @abstractmethod
    def _is_of_one_job(self, error: Exception) -> bool:
        """Whether an error is about something that was to be written, not about the store."""

    @abstractmethod
    def _store_error(self, error: Exception) -> StoreError:
        """The store's error, as a StoreError."""

    @abstractmethod
    def _leave(self) -> None:
        """Let the connection go, at the end."""

    def _look(self) -> None:
        """See what other processes have stored, where the connection shows it."""

    def _tell(self) -> None:
        """Tell other processes that something was stored, where they would not see it."""
