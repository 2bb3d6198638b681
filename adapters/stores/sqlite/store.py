"""The Store in one SQLite file."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel

from proctor.policies.stream.events import Event
from proctor.supervisor.errors import StoreError, UsageError
from proctor.supervisor.ports import ANY_RUN, LogEntry, Mail, Place, RunFilter, RunInfo, SessionInfo

from . import queries
from .log import latest_place, log_page
from .opening import open_for_writing
from .reading import Readers
from .rows import Batch
from .wakeups import Bell
from .writing import SQLiteWriter

_SYNCHRONOUS = ("FULL", "EXTRA", "NORMAL", "OFF")


class SQLiteStore:
    """Keeps the record in one file, which any number of processes on this machine may share.

    The file is opened, created or migrated here and now; a file that is not a store is left as it is.

    Args:
        path: the file; its directory must exist.
        synchronous: `FULL` (durable over a loss of power), `EXTRA`, `NORMAL` or `OFF` (durable over the
            death of this process only).
        busy_timeout_s: seconds to wait for another process that is writing.
        max_bytes: refuse to store more once the file is this large.

    Raises:
        StoreError: the file cannot be used; `kind` says why.
        UsageError: an argument makes no sense.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: str = "FULL",
        busy_timeout_s: float = 10.0,
        max_bytes: int | None = None,
    ) -> None:
        if synchronous.upper() not in _SYNCHRONOUS:
            raise UsageError(f"`synchronous` is one of {', '.join(_SYNCHRONOUS)}, not `{synchronous}`")
        if not isinstance(path, str | os.PathLike):
            raise UsageError(f"`path` is a value of type `{type(path).__name__}`, not the name of a file")
        if os.fspath(path) in ("", ":memory:"):
            raise UsageError("a SQLite store needs a file; use MemoryStore to keep nothing")
        self.path = Path(path)
        connection = open_for_writing(
            self.path,
            synchronous=synchronous.upper(),
            busy_timeout_s=busy_timeout_s,
            max_bytes=max_bytes,
        )
        self._bell = Bell()
        self._writer = SQLiteWriter(connection, self.path, self._bell)
        self._readers = Readers(self.path, busy_timeout_s=busy_timeout_s)
        self._closed = False

    async def append(self, events: Sequence[Event]) -> list[Event]:
        """Store events as one unit; see `Store.append`. If cancelled, they may still be stored, all of them
        or none.
        """
        self._check_open()
        if not events:
            return []
        batch = Batch(events)
        return await self._writer.do(lambda recorder, look_up: recorder.append(batch, look_up=look_up), len(events))

    async def read(
        self, session_id: str, *, after: int = 0, run_id: str | None = None, newest_first: bool = False
    ) -> AsyncIterator[Event]:
        """The stored events of a session with seq > after, in order; see `Store.read`."""
        how: dict[str, Any] = {"run_id": run_id, "newest_first": newest_first}
        while page := await self._readers.ask(queries.events_page(session_id, after, **how)):
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
        while page := await self._readers.ask(log_page(after, before, tenant, newest_first)):
            for entry in page:
                yield entry
            after, before = (after, page[-1].position) if newest_first else (page[-1].position, None)

    async def place(self) -> Place:
        """After the latest stored event."""
        return await self._readers.ask(latest_place)

    async def last_seq(self, session_id: str) -> int:
        """The seq of a session's latest event, 0 when it has none."""
        session = await self.session(session_id)
        return session.last_seq if session is not None else 0

    async def create_run(self, run: RunInfo) -> None:
        """Register a run before it starts; see `Store.create_run`."""
        await self._writer.do(lambda recorder, _: recorder.create_run(run))

    async def run(self, run_id: str) -> RunInfo | None:
        """A run with its status as the stored events have it, or None."""
        return await self._readers.ask(lambda connection: queries.run_info(connection, run_id))

    async def runs(
        self,
        *,
        limit: int = 100,
        session_id: str | None = None,
        before: str | None = None,
        where: RunFilter = ANY_RUN,
    ) -> list[RunInfo]:
        """Newest first; see `Store.runs`."""
        return await self._readers.ask(lambda found: queries.newest_runs(found, limit, session_id, before, where))

    async def session(self, session_id: str) -> SessionInfo | None:
        """A session, or None."""
        return await self._readers.ask(lambda connection: queries.session_info(connection, session_id))

    async def post(self, mail: Mail) -> int:
        """Leave a message for the owner of a run; returns its mail_id."""
        return await self._writer.do(lambda recorder, _: recorder.post(mail))

    async def mail(self, *, after: int = 0) -> list[Mail]:
        """Messages with mail_id > after, in order."""
        return await self._readers.ask(lambda connection: queries.mail_after(connection, after))

    async def wait(self, token: int, timeout_s: float) -> int:
        """Return when something was stored since `token` or the time is up; see `Store.wait`.

        What other processes store is seen within a twentieth of a second.
        """
        self._check_open()
        with self._writer.watching(), self._bell.listening(token) as rung:
            if rung is None:
                await anyio.lowlevel.checkpoint()
            else:
                with anyio.move_on_after(timeout_s):
                    await rung.wait()
        return self._bell.version

    async def aclose(self) -> None:
        """Finish what was begun, then refuse everything; whoever waits is released."""
        self._closed = True
        self._readers.close()
        await self._writer.aclose()  # last, as only it can bring the log's pages into the file

    async def __aenter__(self) -> SQLiteStore:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError("the store is closed", kind="closed")
