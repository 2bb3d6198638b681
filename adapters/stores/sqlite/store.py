"""A Store in one SQLite file."""

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from queue import Empty
from typing import Any, TypeVar

import anyio

from proctor.supervisor.arguments import check_path
from proctor.supervisor.errors import StoreError, UsageError
from proctor.supervisor.ports.store import Notifier
from proctor.supervisor.ports.stored_types import StoreSize

from ..tables.queries import ReaderPool
from ..tables.store import Job, TableStore, Writer
from . import recording
from .file import (
    WHOLE_FILE,
    Connection,
    IntactFile,
    SameFile,
    check_version,
    connect,
    open_for_writing,
    primary_code,
    store_error,
)
from .recording import Recorder, StaleError

_EVENTS_A_TRANSACTION = 4_096
_LIGHT = 64
"""A job of at most this many rows precedes heavier ones, such as a run's start, its end, or a call."""
_POLL_S = 0.05


class SQLiteWriter(Writer[Recorder]):
    """Owns the connection that writes. A transaction takes up to `_EVENTS_A_TRANSACTION` rows."""

    conflict = sqlite3.IntegrityError
    broken = (sqlite3.Error, StaleError)

    def __init__(self, connection: sqlite3.Connection, path: Path, notifier: Notifier) -> None:
        self._connection = connection
        self._path = path
        self._file = IntactFile(path)
        self._watchers = 0
        self._is_lost = False
        super().__init__(Recorder(connection), str(path), notifier)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """While inside, poll for other processes' writes."""
        with self._lock:
            self._watchers += 1
        self._queue.put(None)
        try:
            yield
        finally:
            with self._lock:
                self._watchers -= 1

    def _next_jobs(self) -> list[Job[Any]]:
        """The oldest job, the light ones, then the others in order; none when it is time to poll."""
        waiting: list[Job[Any] | None] = [*self._held_over]
        self._held_over = []
        with suppress(Empty):
            if not waiting:
                waiting.append(self._queue.get(timeout=_POLL_S if self._watchers else None))
            while True:
                waiting.append(self._queue.get_nowait())
        found = [job for job in waiting if job is not None]
        jobs, size = found[:1], 0
        for job in sorted(found[1:], key=lambda job: job.size > _LIGHT):
            size += job.size
            (self._held_over if size > _EVENTS_A_TRANSACTION else jobs).append(job)
        return jobs

    def _poll(self) -> None:
        self._file.mend_index()
        try:
            if self._recorder.has_changed() or self._was_lost():
                self._notifier.notify()
        except sqlite3.Error:
            self._recorder.forget()  # whoever reads or writes next is told what is wrong

    def _was_lost(self) -> bool:
        """Whether the file is another one, or gone, for the first time. Whoever waits for it reads it then."""
        before = self._is_lost
        try:
            self._file.found()
            self._is_lost = False
        except StoreError:
            self._is_lost = True
        return self._is_lost and not before

    def _transact(self, jobs: list[Job[Any]], *, find_stored: bool) -> Exception | None:
        try:
            try:
                self._attempt(jobs, find_stored)
            except StaleError:
                self._abandon()
                self._recorder.begin()
                self._attempt(jobs, find_stored)
        except Exception as error:
            self._abandon()
            return error
        return None

    def _attempt(self, jobs: list[Job[Any]], find_stored: bool) -> None:
        self._file.check()  # before anything is written behind a hole
        check_version(self._connection, self._path)  # a process of another version may have upgraded it
        for job in jobs:
            self._work(job, find_stored)
        self._recorder.commit()
        self._file.check()

    def _abandon(self) -> None:
        self._recorder.forget()
        self._file.mend_index()
        with suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def _is_of_one_job(self, error: Exception) -> bool:
        return not isinstance(error, StoreError) and primary_code(error) not in WHOLE_FILE

    def _store_error(self, error: Exception) -> StoreError:
        return error if isinstance(error, StoreError) else store_error(error, self._path)

    def _leave(self) -> None:
        self._file.mend_index()
        with suppress(sqlite3.Error):
            self._connection.close()


T = TypeVar("T")


class FileReaders(ReaderPool["Connection"]):
    """Reads a file while its identity is the same."""

    def __init__(self, path: Path, *, busy_timeout_s: float, check: Callable[[], None]) -> None:
        super().__init__(check)
        self._path = path
        self._busy_timeout_s = busy_timeout_s
        self._same = SameFile(path)

    async def alone(self, work: Callable[[Connection], T]) -> T:
        """Run a function, in a worker thread, with a connection of its own that may write."""
        self.check_open()
        return await anyio.to_thread.run_sync(self._alone, work)

    def _alone(self, work: Callable[[Connection], T]) -> T:
        try:
            with closing(connect(self._path, "rw", busy_timeout_s=self._busy_timeout_s)) as connection:
                return work(connection)
        except sqlite3.Error as error:
            raise store_error(error, self._path) from error

    def _query(self, query: Callable[[Connection], T]) -> T:
        self._same.found()
        try:
            with self.lent() as connection:
                if connection.sealed is None:
                    return query(connection)
                connection.sealed.check()
                found = query(connection)
                connection.sealed.check()
                return found
        except sqlite3.Error as error:
            raise store_error(error, self._path) from error

    def _open(self) -> Connection:
        return connect(self._path, "ro", busy_timeout_s=self._busy_timeout_s)

    def _drop(self, connection: Connection) -> None:
        connection.close()


_BETWEEN_STEPS_S = 0.01
_SYNCHRONOUS = ("FULL", "EXTRA", "NORMAL", "OFF")


class SQLiteStore(TableStore):
    """A store in one SQLite file, which any number of processes on this machine can share.

    The constructor opens, creates or migrates the file; a file that is not a store is left as it is.

    Args:
        path: the file; its directory must exist.
        synchronous: `FULL` (durable over a loss of power), `EXTRA`, `NORMAL` or `OFF` (durable over the
            death of this process only).
        busy_timeout_s: seconds to wait for another process that is writing.
        max_bytes: store nothing more once the file has this many bytes.
        may_be_read_only: open a file in a folder that may not be written, too: each write then raises StoreError.
        wall_clock: the time for the windows of budgets, in seconds since the epoch.

    Raises:
        StoreError: the file cannot be used; `kind` says why.
        UsageError: an argument is wrong.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: str = "FULL",
        busy_timeout_s: float = 10.0,
        max_bytes: int | None = None,
        may_be_read_only: bool = False,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        if synchronous.upper() not in _SYNCHRONOUS:
            raise UsageError(f"`synchronous` is one of {', '.join(_SYNCHRONOUS)}, not `{synchronous}`")
        check_path(path=path)
        if os.fspath(path) in ("", ":memory:"):
            raise UsageError("a SQLite store needs a file; use MemoryStore to keep nothing")
        self.path = Path(path)
        connection = open_for_writing(
            self.path,
            synchronous=synchronous.upper(),
            busy_timeout_s=busy_timeout_s,
            max_bytes=max_bytes,
            may_be_read_only=may_be_read_only,
        )
        notifier = Notifier()
        try:
            self._file = SQLiteWriter(connection, self.path, notifier)
        except BaseException as error:
            connection.close()
            if isinstance(error, sqlite3.Error):
                raise store_error(error, self.path) from error
            raise
        self._file_readers = FileReaders(self.path, busy_timeout_s=busy_timeout_s, check=self._file.check_process)
        super().__init__(self._file, self._file_readers, notifier, lambda _: round(wall_clock() * 1000))

    async def size(self) -> StoreSize:
        """How much is stored; see `Store.size`."""
        return await self._readers.query(recording.size)

    async def compact(self) -> None:
        """Free space step by step, with time for other writers in between."""
        more = True
        while more:
            more = await self._file_readers.alone(recording.free_pages)
            await anyio.sleep(_BETWEEN_STEPS_S)

    async def _watching(self) -> AbstractContextManager[None]:
        return self._file.watching()  # what other processes store is seen within a twentieth of a second
