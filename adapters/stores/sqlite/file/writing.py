"""The one thread that writes: many appends become one transaction, each acknowledged after its commit."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

import anyio

from proctor.supervisor.errors import StoreError

from ...wakeups import Bell, Hop, current_hop, set_all
from ..statements.recording import Recorder, StaleError
from .failures import WHOLE_FILE, primary_code, store_error
from .presence import Presence

T = TypeVar("T")

_EVENTS_A_TRANSACTION = 4_096
_LIGHT = 64
"""A job of no more rows goes before heavier ones: that of a run that begins, ends or waits for its call."""
_LOOK_EVERY_S = 0.05


class Job(Generic[T]):
    """One thing to write: `work(recorder, look_up)` is called within a transaction, again if it must be
    redone alone; `weight` is its number of rows.
    """

    __slots__ = ("done", "error", "hop", "result", "weight", "work")

    def __init__(self, work: Callable[[Recorder, bool], T], weight: int) -> None:
        self.work = work
        self.weight = weight
        self.hop: Hop = current_hop()
        self.done = anyio.Event()
        self.result: T | None = None
        self.error: Exception | None = None


class SQLiteWriter:
    """Owns the connection that writes. Every producer waits for its own job, so the queue holds no more
    than one job each; a transaction takes `_EVENTS_A_TRANSACTION` rows and then ends.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path, bell: Bell) -> None:
        self._connection = connection
        self._path = path
        self._bell = bell
        self._recorder = Recorder(connection)
        self._presence = Presence(path)
        self._queue: SimpleQueue[Job[Any] | None] = SimpleQueue()  # None: look around
        self._held_over: list[Job[Any] | None] = []
        self._lock = threading.Lock()
        self._watchers = 0
        self._stopping = False
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name=f"proctor-store-{path.name}", daemon=True)
        self._thread.start()

    async def do(self, work: Callable[[Recorder, bool], T], weight: int = 1) -> T:
        """Have something written; returns once it is durable. If cancelled, it may still be written."""
        self.check_process()
        job = Job(work, weight)
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
                f"store `{self._path}` was opened by another process than this one, which was forked from it; "
                "open it here",
                kind="forked",
            )

    @contextmanager
    def watching(self) -> Iterator[None]:
        """While inside, look for what other processes write."""
        with self._lock:
            self._watchers += 1
        self._queue.put(None)
        try:
            yield
        finally:
            with self._lock:
                self._watchers -= 1

    async def aclose(self) -> None:
        """Write what is queued, close the connection, end the thread."""
        with self._lock:
            self._stopping = True
            self._queue.put(None)  # INVARIANT: no job comes after `_stopping` is set
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._thread.join)

    def _run(self) -> None:
        ended = False
        while not ended:
            if jobs := self._next_jobs():
                self._write(jobs)
            else:
                self._look()
            ended = self._stopping and not self._held_over and self._queue.empty()
        with suppress(sqlite3.Error):
            self._connection.close()
        self._bell.ring()

    def _next_jobs(self) -> list[Job[Any]]:
        """Jobs for one transaction: the oldest, the light ones, then the others as they came; none when it is time to
        look around.
        """
        waiting, self._held_over = [*self._held_over], []
        with suppress(Empty):
            if not waiting:
                waiting.append(self._queue.get(timeout=_LOOK_EVERY_S if self._watchers else None))
            while True:
                waiting.append(self._queue.get_nowait())
        found = [job for job in waiting if job is not None]
        jobs, weight = found[:1], 0
        for job in sorted(found[1:], key=_is_heavy):
            weight += job.weight
            (self._held_over if weight > _EVENTS_A_TRANSACTION else jobs).append(job)
        return jobs

    def _look(self) -> None:
        try:
            if self._recorder.look():
                self._bell.ring()
        except sqlite3.Error:
            self._recorder.forget()  # whoever reads or writes next is told what is wrong

    def _write(self, jobs: list[Job[Any]]) -> None:
        error = self._transact(jobs, look_up=False)
        if isinstance(error, sqlite3.IntegrityError):
            error = self._transact(jobs, look_up=True)
        if error is not None and len(jobs) > 1 and not _of_the_file(error):
            for job in jobs:  # one of them does not fit: the others need not suffer
                self._fail([job], self._transact([job], look_up=True))
        else:
            self._fail(jobs, error)
        set_all((job.hop, job.done) for job in jobs)
        self._bell.ring()

    def _transact(self, jobs: list[Job[Any]], *, look_up: bool) -> Exception | None:
        """Write jobs in one transaction; returns the error after which none of them is stored."""
        try:
            try:
                self._attempt(jobs, look_up)
            except StaleError:
                self._abandon()
                self._recorder.begin()
                self._attempt(jobs, look_up)
        except Exception as error:
            self._abandon()
            return error
        return None

    def _attempt(self, jobs: list[Job[Any]], look_up: bool) -> None:
        for job in jobs:
            self._work(job, look_up)
        self._recorder.commit()
        self._presence.check()

    def _abandon(self) -> None:
        self._recorder.forget()
        with suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def _work(self, job: Job[Any], look_up: bool) -> None:
        job.error = None
        try:
            job.result = job.work(self._recorder, look_up)
        except (sqlite3.Error, StaleError):
            raise
        except StoreError as error:
            job.error = error
        except Exception as error:  # a bug, or no memory: the others' jobs and this thread must survive it
            job.error = StoreError(f"cannot be stored: {type(error).__name__}: {error}", kind="bad_record")

    def _fail(self, jobs: list[Job[Any]], error: Exception | None) -> None:
        if error is not None:
            for job in jobs:
                job.error = error if isinstance(error, StoreError) else store_error(error, self._path)


def _is_heavy(job: Job[Any]) -> bool:
    return job.weight > _LIGHT


def _of_the_file(error: Exception) -> bool:
    """Whether an error is about the file, not about what was to be written."""
    return isinstance(error, StoreError) or primary_code(error) in WHOLE_FILE
