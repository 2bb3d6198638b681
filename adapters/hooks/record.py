"""The store as hooks use it: one session's record at a time, read, decided on and written within one transaction.

The store is the one everything else of the project reads; its file is locked from the first look to the commit, so
that two processes cannot both find the same room in a budget.
"""

from __future__ import annotations

import os
import sqlite3
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from proctor.policies.events import Event
from proctor.supervisor.errors import StoreError
from proctor.supervisor.ports.budget_ledger import Reservation, ReservationResult
from proctor.supervisor.ports.stored_types import (
    NOT_OVER,
    ApprovalAnswer,
    Block,
    Owner,
    RunFilter,
    RunInfo,
    StoredApproval,
)

from ..stores.sqlite.file import Connection, open_for_writing, store_error
from ..stores.sqlite.recording import Recorder
from ..stores.tables import budgets, claiming
from ..stores.tables.batches import Batch
from ..stores.tables.queries import events_page, newest_runs, run_info, session_info
from ..stores.tables.recording import blocks, find_approval
from ..stores.tables.schema import NOTES
from ..stores.tables.seals import marked, note_mark

BUSY_S = 10.0
LEASE_S = 900.0
"""Seconds after its last heartbeat until a client counts as gone, if its process can't be seen."""
MOST_RUNNING = 1000
"""The most runs of earlier processes that a new daemon watches."""
LINE_NOTE = "line"
"""The name of the first line that evaluated a session."""
_WHOLE = ""
"""The session under which notes on the store itself are kept."""


def store_id(path: Path) -> str:
    """The id by which a store is known again; the store is made, and given one, if need be. Raises StoreError."""
    connection = _connection(path)
    try:
        connection.execute("BEGIN IMMEDIATE")
        found = _note(connection, _WHOLE, "store_id") or uuid.uuid4().hex.encode()
        _keep(connection, _WHOLE, "store_id", found)
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise store_error(error, path) from error
    finally:
        connection.close()
    return found.decode()


def latest_note(path: Path, name: str) -> bytes | None:
    """The note of this name that was kept last, of any session. Raises StoreError."""
    connection = _connection(path)
    try:
        row = connection.execute(
            "SELECT data FROM hook_notes WHERE name = ? ORDER BY json_extract(data, '$.at') DESC LIMIT 1", (name,)
        ).fetchone()
    except sqlite3.Error as error:
        raise store_error(error, path) from error
    finally:
        connection.close()
    return row and bytes(row[0])


class HookRecord:
    """One session's record while this hook has it.

    `client` is whose hook it is, where that is known, and `owner` whose the run is that is written.
    """

    def __init__(self, connection: Connection, recorder: Recorder, session_id: str, client: Owner | None) -> None:
        self._connection = connection
        self._recorder = recorder
        self.session_id = session_id
        self.client = client
        self.owner: Owner | None = None

    def of(self, line: str) -> HookRecord:
        """The record that hooks of this command line keep of the client's session.

        The first line to record a session has it under the client's id; another, with policies of its own, evaluates
        the session by a record of its own.
        """
        first = self.note(LINE_NOTE)
        if first is None:
            self.keep(LINE_NOTE, line.encode())
        if first is None or first == line.encode():
            return self
        return HookRecord(self._connection, self._recorder, f"{self.session_id}.{line}", self.client)

    @property
    def seq(self) -> int:
        """That of the latest event, 0 when there is none."""
        found = session_info(self._connection, self.session_id)
        return 0 if found is None else found.last_seq

    def past(self) -> Iterator[Event]:
        after = 0
        while page := events_page(self.session_id, after)(self._connection):
            yield from page
            after = page[-1].seq

    def blocks(self) -> list[Block]:
        """The blocks that keep runs from starting."""
        return blocks(self._connection)

    def running(self) -> list[RunInfo]:
        """The newest runs that are not over, of any session."""
        return newest_runs(self._recorder, limit=MOST_RUNNING, where=RunFilter(status=NOT_OVER))

    def begin_run(self, run_id: str, provider: str, at: datetime, spec: dict[str, Any]) -> None:
        """Register a run of the session, the client's own. Raises StoreError if another run of it is active."""
        run = RunInfo(run_id=run_id, session_id=self.session_id, provider=provider, created_at=at, spec=spec)
        self.owner = claiming.create(self._recorder, run, epoch=self._registered()).owner

    def resume_run(self, run_id: str) -> None:
        """Write an active run. One without an owner becomes this client's."""
        run = run_info(self._recorder, run_id)
        self.owner = run.owner if run is not None else None
        if self.owner is None and self.client is not None:
            self.owner = claiming.claim(self._recorder, run_id, epoch=self._registered(), lost=True).owner

    def renew(self, epoch: int) -> None:
        """The client of this epoch is still there."""
        with suppress(StoreError):  # it was turned out, and its run is being ended
            claiming.renew(self._recorder, epoch, lease_s=LEASE_S)

    def _registered(self) -> int:
        """The epoch of this hook's client, of which each run has one of its own; 0 where it is not known."""
        return 0 if self.client is None else claiming.register(self._recorder, self.client, lease_s=LEASE_S).epoch

    def append(self, events: Sequence[Event]) -> None:
        """Add to the record; durable when the record is left. Raises StoreError for a run that somebody else has
        claimed, to end it.
        """
        self._recorder.append(Batch(events), find_stored=False, epoch=self._epoch)

    def accepted_answer(self, approval_id: str) -> ApprovalAnswer | None:
        """The answer that the store has accepted, such as the dashboard's; later answers don't count."""
        stored = find_approval(self._recorder, approval_id)
        return None if stored is None else stored.answer

    def reserve(self, run_id: str, reservations: Sequence[Reservation], now_ms: int) -> list[ReservationResult]:
        """Reserve from shared budgets; see `Store.reserve`."""
        return budgets.reserve(self._recorder, run_id, reservations, self._epoch, lambda _: now_ms)

    def settle(self, run_id: str, used: Mapping[str, float], now_ms: int) -> list[ReservationResult]:
        """The run reserves no more; see `Store.settle`."""
        return budgets.settle(self._recorder, run_id, used, self._epoch, lambda _: now_ms)

    @property
    def _epoch(self) -> int:
        return self.owner.epoch if self.owner is not None and self.owner.is_client else 0

    def note(self, name: str) -> bytes | None:
        """The note under this name beside the record, if there is one."""
        return _note(self._connection, self.session_id, name)

    def notes_of_all(self, name: str, *, having: bytes = b"") -> list[tuple[str, bytes]]:
        """The notes under this name beside each session's record, of those that have these bytes."""
        sql = "SELECT session_id, data FROM hook_notes WHERE name = ? AND instr(data, ?)"
        rows = self._connection.execute(sql, (name, having))
        return [(str(session_id), bytes(data)) for session_id, data in rows]

    def keep(self, name: str, data: bytes) -> None:
        """Keep something beside the record; durable together with what is appended."""
        _keep(self._connection, self.session_id, name, data)


class HookStore:
    """The one store whose id a hook's command line has: one that is gone refuses. Without an id, it is the store that
    is there first, made if need be.
    """

    def __init__(self, path: Path, known_as: str) -> None:
        self._path = path
        self._known_as = known_as
        self._open: tuple[Connection, Recorder, tuple[int, int]] | None = None

    @contextmanager
    def record(self, session_id: str, client: Owner | None = None) -> Iterator[HookRecord]:
        """A session's record, for this hook of the client alone; what was added is durable when it is left, or not
        there at all.

        Raises StoreError when the file is not the store it was, cannot be used, or others do not let it go within
        `BUSY_S` seconds.
        """
        try:
            connection, recorder = self._opened()
            recorder.begin()
            yield HookRecord(connection, recorder, session_id, client)
            recorder.commit()
        except BaseException as error:
            self.close()
            if isinstance(error, sqlite3.Error):
                raise store_error(error, self._path) from error
            raise

    def approval(self, approval_id: str) -> StoredApproval | None:
        """An approval as it is now. Raises StoreError."""
        try:
            return find_approval(self._opened()[0], approval_id)
        except sqlite3.Error as error:
            self.close()
            raise store_error(error, self._path) from error

    def close(self) -> None:
        """Let the file go; what was not committed is undone."""
        if self._open is not None:
            with suppress(sqlite3.Error):
                self._open[0].close()
            self._open = None

    def _opened(self) -> tuple[Connection, Recorder]:
        self._known_as = self._known_as or store_id(self._path)
        file = _identity(self._path)
        if self._open is not None and self._open[2] != file:
            self.close()
        if self._open is None:
            connection = _connection(self._path)
            if (_note(connection, _WHOLE, "store_id") or b"").decode() != self._known_as:
                connection.close()
                raise StoreError(
                    f"`{self._path}` is not the store the hooks were installed with, so what was used is not known; "
                    "put it back, or install the hooks again",
                    kind="not_a_store",
                )
            self._open = connection, Recorder(connection), file
        return self._open[:2]


def _identity(path: Path) -> tuple[int, int]:
    """The identity of the file. Raises StoreError if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        raise StoreError(
            f"there is no store at `{path}` any more, so what was used is not known; "
            "put it back, or install the hooks again",
            kind="unwritable",
        ) from None
    return found.st_dev, found.st_ino


def _connection(path: Path) -> Connection:
    return open_for_writing(path, synchronous="FULL", busy_timeout_s=BUSY_S, max_bytes=None)


def _note(connection: Connection, session_id: str, name: str) -> bytes | None:
    sql = "SELECT data FROM hook_notes WHERE session_id = ? AND name = ?"
    row = connection.execute(sql, (session_id, name)).fetchone()
    return row and bytes(row[0])


def _keep(connection: Connection, session_id: str, name: str, data: bytes) -> None:
    before = _note(connection, session_id, name)
    marks = [note_mark(session_id, name, one) for one in (before, data) if one is not None]
    connection.execute(*marked(NOTES, *marks))
    connection.execute("INSERT OR REPLACE INTO hook_notes VALUES (?, ?, ?)", (session_id, name, data))
