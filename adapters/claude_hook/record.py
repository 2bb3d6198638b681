"""The record of a session, opened by one hook at a time: read, judged and written within one transaction.

The store is the one everything else of the project reads; its file is locked from the reading of the past
to the commit, so that two hooks at once cannot both find the same room in a budget.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from proctor.policies.stream.events import Event
from proctor.supervisor.ports import RunInfo

from ..stores.sqlite.failures import store_error
from ..stores.sqlite.opening import open_for_writing
from ..stores.sqlite.queries import events_after
from ..stores.sqlite.recording import Recorder
from ..stores.sqlite.rows import Batch

BUSY_S = 10.0


class Record:
    """One session's record while this hook has it."""

    def __init__(self, connection: sqlite3.Connection, session_id: str) -> None:
        self._connection = connection
        self._recorder = Recorder(connection)
        self._session_id = session_id
        self._recorder.begin()

    def past(self) -> Iterator[Event]:
        """The events so far."""
        after = 0
        while page := events_after(self._session_id, after, None)(self._connection):
            yield from page
            after = page[-1].seq

    def begin_run(self, run_id: str, provider: str, at: datetime) -> None:
        """Register a run of the session."""
        run = RunInfo(run_id=run_id, session_id=self._session_id, provider=provider, created_at=at)
        self._recorder.create_run(run)

    def append(self, events: Sequence[Event]) -> None:
        """Add to the record; durable when the record is left."""
        self._recorder.append(Batch(events), look_up=False)

    def note(self, name: str) -> bytes | None:
        """What is kept under this name beside the record, if anything is."""
        row = self._connection.execute(
            "SELECT data FROM notes WHERE session_id = ? AND name = ?", (self._session_id, name)
        ).fetchone()
        return row and bytes(row[0])

    def keep(self, name: str, data: bytes) -> None:
        """Keep something beside the record; durable together with what is appended."""
        self._connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?, ?)", (self._session_id, name, data))

    def commit(self) -> None:
        """Make it durable and let the next hook in."""
        self._recorder.commit()


@contextmanager
def opened(path: Path, session_id: str) -> Iterator[Record]:
    """The record, for this hook alone; what was added is durable when it is left, or not there at all.

    Raises StoreError when the file cannot be used, or others do not let it go within `BUSY_S` seconds.
    """
    connection = open_for_writing(path, synchronous="FULL", busy_timeout_s=BUSY_S, max_bytes=None)
    try:
        record = Record(connection, session_id)
        yield record
        record.commit()
    except sqlite3.Error as error:
        raise store_error(error, path) from error
    finally:
        connection.close()
