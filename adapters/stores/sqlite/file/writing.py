"""The thread that writes a file: the oldest job first, then the light ones."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty
from typing import Any

from proctor.supervisor.errors import StoreError

from ...tables.writing import Job, Writer
from ...wakeups import Bell
from ..statements.recording import Recorder, StaleError
from .failures import WHOLE_FILE, primary_code, store_error
from .presence import Presence

_EVENTS_A_TRANSACTION = 4_096
_LIGHT = 64
"""A job of no more rows goes before heavier ones: that of a run that begins, ends or waits for its call."""
_LOOK_EVERY_S = 0.05


class SQLiteWriter(Writer[Recorder]):
    """Owns the connection that writes. A transaction takes `_EVENTS_A_TRANSACTION` rows and then ends."""

    conflict = sqlite3.IntegrityError
    broken = (sqlite3.Error, StaleError)

    def __init__(self, connection: sqlite3.Connection, path: Path, bell: Bell) -> None:
        self._connection = connection
        self._path = path
        self._presence = Presence(path)
        self._watchers = 0
        super().__init__(Recorder(connection), str(path), bell)

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

    def _next_jobs(self) -> list[Job[Any]]:
        """The oldest, the light ones, then the others as they came; none when it is time to look around."""
        waiting: list[Job[Any] | None] = [*self._held_over]
        self._held_over = []
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

    def _transact(self, jobs: list[Job[Any]], *, look_up: bool) -> Exception | None:
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
        self._presence.check()  # before anything is written behind a hole
        for job in jobs:
            self._work(job, look_up)
        self._recorder.commit()
        self._presence.check()

    def _abandon(self) -> None:
        self._recorder.forget()
        with suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def _is_of_one_job(self, error: Exception) -> bool:
        return not isinstance(error, StoreError) and primary_code(error) not in WHOLE_FILE

    def _store_error(self, error: Exception) -> StoreError:
        return error if isinstance(error, StoreError) else store_error(error, self._path)

    def _leave(self) -> None:
        with suppress(sqlite3.Error):
            self._connection.close()


def _is_heavy(job: Job[Any]) -> bool:
    return job.weight > _LIGHT
