"""The store of a simulation: in memory, or the real one in a SQLite file. Its thread is a task that the seed
schedules; several stores may share the file, as processes do. The witness sees everything that is stored.
"""

import os
import sqlite3
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import cache, partial
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, Final, TypeVar, cast

import anyio
from anyio import to_thread
from anyio.lowlevel import checkpoint

from proctor.adapters.stores.sqlite import recording as sqlite_recording
from proctor.adapters.stores.sqlite import store as sqlite_store
from proctor.adapters.stores.sqlite.store import SQLiteStore, SQLiteWriter
from proctor.adapters.stores.tables import batches, budgets, claiming, queries, recording
from proctor.adapters.stores.tables import store as tables_store
from proctor.adapters.stores.tables.batches import Batch
from proctor.policies.events import Event, RecordPruned, decode_event
from proctor.supervisor import MemoryStore, RunInfo
from proctor.supervisor.ports import store as store_port
from proctor.supervisor.ports.budget_ledger import ReservationResult

from .scheduler import OWNER, changed
from .witness import Witness

T = TypeVar("T")
Clock = Callable[[], float]
POLL_S: Final = 0.5
FOLDER: Final = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""In memory, if the system has such a folder: no simulation tests disks."""


@asynccontextmanager
async def opened(
    kind: str, witness: Witness, wall_clock: Clock, breaks: Sequence[int], owners: int
) -> AsyncIterator[list[Any]]:
    """The stores of the owners and, last, of everyone else: one `memory` or `sqlite` store, or with `sqlite each` one
    for each owner on the same file. In a file, the transactions with these numbers find the disk full at their end.
    """
    if kind == "memory":
        yield [MemoryWatched(witness, wall_clock)] * (owners + 1)
        return
    with _empty_file() as path, _inline():
        seen = _Seen()
        several = owners + 1 if kind == "sqlite each" else 1
        stores = [SQLiteWatched(witness, wall_clock, path, breaks, seen) for _ in range(several)]
        try:
            async with anyio.create_task_group() as tasks:
                for number, store in enumerate(stores):
                    tasks.start_soon(store.writer.work, number if number < several - 1 else None, several > 1)
                yield stores if several > 1 else stores * (owners + 1)
                tasks.cancel_scope.cancel()
        finally:
            for store in stores:
                store.leave()


class _Seen:
    """What the witness has seen of a file."""

    def __init__(self) -> None:
        self.position = 0
        self.committed: Counter[str] = Counter()


class MemoryWatched(MemoryStore):
    """A store in memory. The witness sees everything that it stores."""

    def __init__(self, witness: Witness, wall_clock: Clock) -> None:
        super().__init__(wall_clock=wall_clock)
        self._witness = witness

    def mend(self) -> None:
        """Nothing in it can fail."""

    async def create_run(self, run: RunInfo, *, epoch: int = 0) -> RunInfo:
        created = await super().create_run(run, epoch=epoch)
        self._witness.claimed(run.run_id, epoch)
        return created

    async def claim_run(self, run_id: str, *, epoch: int, lost: bool = False) -> RunInfo:
        claimed = await super().claim_run(run_id, epoch=epoch, lost=lost)
        self._witness.claimed(run_id, epoch)
        return claimed

    async def settle(self, run_id: str, used: Mapping[str, float], *, epoch: int) -> list[ReservationResult]:
        drawn = await super().settle(run_id, used, epoch=epoch)
        self._witness.settled(run_id)
        return drawn

    async def prune(self, event: RecordPruned, *, up_to: int) -> RecordPruned | None:
        left = await super().prune(event, up_to=up_to)
        if left is not None:
            self._witness.removed(event.session_id)
        return left

    def _append(self, events: Sequence[Event], epoch: int) -> list[Event]:
        before: Any = len(self._records.log)
        stored = super()._append(events, epoch)
        for event in stored[len(stored) - (len(self._records.log) - before) :] if stored else ():
            self._witness.written(event, epoch)
            self._witness.stored(event)
        return stored


class SQLiteWatched(SQLiteStore):
    """The real store in a SQLite file. The witness sees the writes of each transaction after its commit."""

    def __init__(self, witness: Witness, wall_clock: Clock, path: Path, breaks: Sequence[int], seen: _Seen) -> None:
        super().__init__(path, synchronous="OFF", wall_clock=wall_clock)
        self._witness = witness
        self._seen = seen
        self.writer = cast("_TaskWriter", self._file)
        self.writer.breaks = breaks
        self.writer.committed = self._look

    async def create_run(self, run: RunInfo, *, epoch: int = 0) -> RunInfo:
        def create(recorder: Any, _: bool) -> RunInfo:
            created = claiming.create(recorder, run, epoch=epoch)
            self._note(self._witness.claimed, run.run_id, epoch)
            return created

        return await self._writer.do(create)

    async def claim_run(self, run_id: str, *, epoch: int, lost: bool = False) -> RunInfo:
        def claim(recorder: Any, _: bool) -> RunInfo:
            claimed = claiming.claim(recorder, run_id, epoch=epoch, lost=lost)
            self._note(self._witness.claimed, run_id, epoch)
            return claimed

        return await self._writer.do(claim)

    async def settle(self, run_id: str, used: Mapping[str, float], *, epoch: int) -> list[ReservationResult]:
        def settle(recorder: Any, _: bool) -> list[ReservationResult]:
            drawn = budgets.settle(recorder, run_id, used, epoch, self._now_ms)
            self._note(self._witness.settled, run_id)
            return drawn

        return await self._writer.do(settle)

    async def prune(self, event: RecordPruned, *, up_to: int) -> RecordPruned | None:
        def prune(recorder: Any, _: bool) -> RecordPruned | None:
            left = recording.prune(recorder, event, up_to=up_to)
            if left is not None:
                self._note(self._witness.removed, event.session_id)
            return left

        return await self._writer.do(prune)

    async def append(self, events: Sequence[Event], *, epoch: int = 0) -> list[Event]:
        if not events:
            return []
        batch = Batch(events)

        def append(recorder: Any, find_stored: bool) -> list[Event]:
            stored: list[Event] = recorder.append(batch, find_stored=find_stored, epoch=epoch)
            self._note(self._written, stored, epoch)
            return stored

        return await self._writer.do(append, batch)

    def _note(self, what: Callable[..., None], *about: Any) -> None:
        self.writer.notes.append(partial(what, *about))

    def _written(self, stored: list[Event], epoch: int) -> None:
        for event in stored:
            if event.seq > self._seen.committed[event.session_id]:  # else it was repeated
                self._witness.written(event, epoch)

    def _look(self) -> None:
        while page := self._file_readers._query(queries.log_page(self._seen.position, None, None, False)):
            for entry in page:
                self._seen.position = entry.position
                self._seen.committed[entry.session_id] = entry.seq
                self._witness.stored(decode_event(entry.data))

    def mend(self) -> None:
        """No transaction fails from now on."""
        self.writer.breaks = ()

    def leave(self) -> None:
        self._readers.close()
        self._file._leave()


class _Queue(SimpleQueue[Any]):
    """A queue of jobs; a task may wait for the next one."""

    def __init__(self) -> None:
        self.filled = anyio.Event()

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        super().put(item, block, timeout)
        self.filled.set()


class _TaskWriter(SQLiteWriter):
    """Writes in a task instead of a thread. Jobs that arrive before it runs share a transaction."""

    committed: Callable[[], None]
    breaks: Sequence[int]

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._queue: _Queue = _Queue()
        self._number = 0
        self.notes: list[Callable[[], None]] = []
        """What to report to the witness after the commit."""

    async def work(self, owner: int | None, is_shared: bool) -> None:
        """Write queued jobs for ever, unless its owner is suspended. If the file `is_shared`, look regularly for the
        writes of others.
        """
        if owner is not None:
            OWNER.set(owner)
        while True:
            with anyio.move_on_after(POLL_S if is_shared else None):
                await self._queue.filled.wait()
            if not self._queue.filled.is_set():
                self._poll()
                continue
            await checkpoint()
            self._queue.filled = anyio.Event()
            while self._held_over or not self._queue.empty():
                if jobs := self._next_jobs():
                    self._write(jobs)

    def _write(self, jobs: list[Any]) -> None:
        super()._write(jobs)
        for note in self.notes:
            note()
        self.notes.clear()
        self.committed()

    def _attempt(self, jobs: list[Any], find_stored: bool) -> None:
        self._number += 1
        before = len(self.notes)
        try:
            if self._number in self.breaks:
                for job in jobs:
                    self._work(job, find_stored)
                raise _disk_full()
            super()._attempt(jobs, find_stored)
        except BaseException:
            del self.notes[before:]
            raise


def _disk_full() -> sqlite3.Error:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    return error


class _NoThread:
    def __init__(self, **_: Any) -> None:
        pass

    def start(self) -> None:
        """Nothing: a task does it."""


def _inline() -> Any:
    """The event loop does what a SQLite store does in threads, and leases use virtual time."""

    async def run_sync(work: Callable[..., T], *args: Any, **_: Any) -> T:
        await checkpoint()
        return work(*args)

    return changed(
        (tables_store, "threading", SimpleNamespace(Lock=threading.Lock, Thread=_NoThread)),
        (sqlite_store, "SQLiteWriter", _TaskWriter),
        (tables_store, "current_hop", lambda: _at_once),
        (store_port, "current_hop", lambda: _at_once),
        (to_thread, "run_sync", run_sync),
        (sqlite_recording, "time", SimpleNamespace(monotonic=anyio.current_time)),
        (batches, "is_gone", lambda owner: False),
    )


def _at_once(do: Callable[[], object]) -> None:
    do()


@contextmanager
def _empty_file() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        path = Path(folder, "runs.db")
        path.write_bytes(_empty())
        yield path


@cache
def _empty() -> bytes:
    """A file with the empty tables of a store."""
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        path = Path(folder, "runs.db")
        store = SQLiteStore(path)
        store._readers.close()
        store._file._stopping = True
        store._file._queue.put(None)
        store._file._join()
        return path.read_bytes()
