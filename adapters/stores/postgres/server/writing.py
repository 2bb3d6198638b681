"""The one thread that writes: many appends become one transaction, each acknowledged after its commit."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

import anyio
import anyio.to_thread
import psycopg

from proctor.supervisor.errors import StoreError

from ...sqlite.statements.rows import Batch
from ...wakeups import Bell, Hop, current_hop, set_all
from ..connection.failures import passes, store_error
from ..connection.line import Line, tries
from ..statements.recording import Recorder

T = TypeVar("T")

_EVENTS_A_TRANSACTION = 16_384
_CLOSING_S = 5.0


class Job(Generic[T]):
    """One thing to write: `work(recorder, look_up)` is called within a transaction, again if it must be redone.

    What appends has its `batch`, and shares a transaction with others; anything else begins one of its own.
    """

    __slots__ = ("batch", "done", "error", "hop", "result", "work")

    def __init__(self, work: Callable[[Recorder, bool], T], batch: Batch | None) -> None:
        self.work = work
        self.batch = batch
        self.hop: Hop = current_hop()
        self.done = anyio.Event()
        self.result: T | None = None
        self.error: Exception | None = None

    @property
    def weight(self) -> int:
        return _EVENTS_A_TRANSACTION if self.batch is None else len(self.batch.events)


class PostgresWriter:
    """Owns the connection that writes. Every producer waits for its own job, so the queue holds no more
    than one job each; a transaction takes `_EVENTS_A_TRANSACTION` rows and then ends.
    """

    def __init__(self, line: Line, name: str, bell: Bell) -> None:
        self._line = line
        self._name = name
        self._bell = bell
        self._recorder = Recorder(line)
        self._queue: SimpleQueue[Job[Any] | None] = SimpleQueue()  # None: it is to end
        self._held_over: Job[Any] | None = None
        self._lock = threading.Lock()
        self._stopping = False
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="proctor-postgres", daemon=True)
        self._thread.start()

    async def do(self, work: Callable[[Recorder, bool], T], batch: Batch | None = None) -> T:
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
                f"store `{self._name}` was opened by another process than this one, which was forked from it; "
                "open it here",
                kind="forked",
            )

    async def aclose(self) -> None:
        """Write what is queued, close the connection, end the thread. What the server does not answer within
        seconds is given up.
        """
        with self._lock:
            self._stopping = True
            self._queue.put(None)  # INVARIANT: no job comes after `_stopping` is set
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._join)

    def _join(self) -> None:
        self._thread.join(_CLOSING_S)
        if self._thread.is_alive():
            self._line.cut()
            self._thread.join()

    def _run(self) -> None:
        ended = False
        while not ended:
            if jobs := self._next_jobs():
                self._write(jobs)
            ended = self._stopping and self._held_over is None and self._queue.empty()
        with suppress(psycopg.Error, StoreError):
            self._recorder.leave()
        self._line.drop()
        self._bell.ring()

    def _next_jobs(self) -> list[Job[Any]]:
        jobs: list[Job[Any]] = []
        weight = 0
        with suppress(Empty):
            job = self._held_over or self._queue.get()
            self._held_over = None
            while job is not None:
                if jobs and weight + job.weight > _EVENTS_A_TRANSACTION:
                    self._held_over = job
                    break
                jobs.append(job)
                weight += job.weight
                job = self._queue.get_nowait()
        return jobs

    def _write(self, jobs: list[Job[Any]]) -> None:
        error = self._transact(jobs, look_up=False)
        if isinstance(error, psycopg.IntegrityError):
            error = self._transact(jobs, look_up=True)
        if isinstance(error, psycopg.DatabaseError) and not isinstance(error, psycopg.OperationalError):
            for job in jobs if len(jobs) > 1 else ():  # one of them does not fit: the others need not suffer
                self._fail([job], self._transact([job], look_up=True))
            if len(jobs) == 1:
                self._fail(jobs, error)
        else:
            self._fail(jobs, error)
        set_all((job.hop, job.done) for job in jobs)
        self._bell.ring()
        if error is None:
            with suppress(psycopg.Error, StoreError):
                self._recorder.notify()

    def _transact(self, jobs: list[Job[Any]], *, look_up: bool) -> Exception | None:
        """Write jobs in one transaction; returns the error after which none of them is stored."""
        error: Exception | None = None
        for _ in tries(self._line.patience_s):
            try:
                self._attempt(jobs, look_up)
            except Exception as raised:
                error = raised
                self._recorder.undo()
                if not passes(raised):
                    return raised
                self._line.make_way(raised)
            else:
                return None
        return error

    def _attempt(self, jobs: list[Job[Any]], look_up: bool) -> None:
        batches = [job.batch for job in jobs if job.batch is not None]
        if batches:
            parts = [part for batch in batches for part in batch.parts]
            self._recorder.begin((part.session_id for part in parts), (part.run_id for part in parts))
        for job in jobs:
            self._work(job, look_up)
        self._recorder.commit()

    def _work(self, job: Job[Any], look_up: bool) -> None:
        job.error = None
        try:
            job.result = job.work(self._recorder, look_up)
        except psycopg.Error:
            raise
        except StoreError as error:
            job.error = error
        except Exception as error:  # a bug, or no memory: the others' jobs and this thread must survive it
            job.error = StoreError(f"cannot be stored: {type(error).__name__}: {error}", kind="bad_record")

    def _fail(self, jobs: list[Job[Any]], error: Exception | None) -> None:
        if error is not None:
            for job in jobs:
                job.error = store_error(error, self._name)
