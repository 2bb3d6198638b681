"""The thread that writes to a server, again where the connection is lost."""

from __future__ import annotations

from contextlib import suppress
from queue import Empty
from typing import Any

import psycopg

from proctor.supervisor.errors import StoreError

from ...tables.writing import Job, Writer
from ...wakeups import Bell
from ..connection.failures import passes, store_error
from ..connection.line import Line, tries
from ..statements.recording import Recorder

_EVENTS_A_TRANSACTION = 16_384
_CLOSING_S = 5.0


class PostgresWriter(Writer[Recorder]):
    """Owns the connection that writes. A transaction takes `_EVENTS_A_TRANSACTION` rows and then ends; what does not
    append has one of its own.
    """

    conflict = psycopg.IntegrityError
    broken = (psycopg.Error,)

    def __init__(self, line: Line, name: str, bell: Bell) -> None:
        self._line = line
        super().__init__(Recorder(line), name, bell)

    def _join(self) -> None:
        """What the server does not answer within seconds is given up."""
        self._thread.join(_CLOSING_S)
        if self._thread.is_alive():
            self._line.cut()
            self._thread.join()

    def _next_jobs(self) -> list[Job[Any]]:
        jobs: list[Job[Any]] = []
        weight = 0
        with suppress(Empty):
            job = self._held_over.pop() if self._held_over else self._queue.get()
            while job is not None:
                weight += _EVENTS_A_TRANSACTION if job.batch is None else job.weight
                if jobs and weight > _EVENTS_A_TRANSACTION:
                    self._held_over = [job]
                    break
                jobs.append(job)
                job = self._queue.get_nowait()
        return jobs

    def _transact(self, jobs: list[Job[Any]], *, look_up: bool) -> Exception | None:
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
            self._recorder.hold((part.session_id for part in parts), (part.run_id for part in parts))
        for job in jobs:
            self._work(job, look_up)
        self._recorder.commit()

    def _is_of_one_job(self, error: Exception) -> bool:
        return isinstance(error, psycopg.DatabaseError) and not isinstance(error, psycopg.OperationalError)

    def _store_error(self, error: Exception) -> StoreError:
        return store_error(error, self._name)

    def _tell(self) -> None:
        with suppress(psycopg.Error, StoreError):
            self._recorder.notify()

    def _leave(self) -> None:
        with suppress(psycopg.Error, StoreError):
            self._recorder.leave()
        self._line.drop()
