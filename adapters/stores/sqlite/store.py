"""The Store in one SQLite file."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.lowlevel

from proctor.supervisor.errors import UsageError
from proctor.supervisor.ports.facts import StoreSize

from ..tables.store import TableStore
from ..wakeups import Bell
from .file.opening import open_for_writing
from .file.reading import Readers
from .file.writing import SQLiteWriter
from .statements import room

_BETWEEN_STEPS_S = 0.01
_SYNCHRONOUS = ("FULL", "EXTRA", "NORMAL", "OFF")


class SQLiteStore(TableStore):
    """Keeps the record in one file, which any number of processes on this machine may share.

    The file is opened, created or migrated here and now; a file that is not a store is left as it is.

    Args:
        path: the file; its directory must exist.
        synchronous: `FULL` (durable over a loss of power), `EXTRA`, `NORMAL` or `OFF` (durable over the
            death of this process only).
        busy_timeout_s: seconds to wait for another process that is writing.
        max_bytes: refuse to store more once the file is this large.
        wall_clock: the time by which windows of budgets go, in seconds since the epoch.

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
        wall_clock: Callable[[], float] = time.time,
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
        bell = Bell()
        try:
            self._file = SQLiteWriter(connection, self.path, bell)
        except BaseException:
            connection.close()
            raise
        self._idle = Readers(self.path, busy_timeout_s=busy_timeout_s, check=self._file.check_process)
        super().__init__(self._file, self._idle, bell, lambda _: round(wall_clock() * 1000))

    async def size(self) -> StoreSize:
        """How much is stored; see `Store.size`."""
        return await self._readers.ask(room.size)

    async def compact(self) -> None:
        """Give room back step by step, with time for others to write between; a file made by an older version is
        written anew once, while no run goes on.
        """
        more = True
        while more:
            more = await self._idle.alone(room.give_back)
            await anyio.sleep(_BETWEEN_STEPS_S)

    async def wait(self, token: int, timeout_s: float) -> int:
        """Return when something was stored since `token` or the time is up; see `Store.wait`.

        What other processes store is seen within a twentieth of a second.
        """
        self._check_open()
        with self._file.watching(), self._bell.listening(token) as rung:
            if rung is None:
                await anyio.lowlevel.checkpoint()
            else:
                with anyio.move_on_after(timeout_s):
                    await rung.wait()
        return self._bell.version

    async def aclose(self) -> None:
        """Finish what was begun, then refuse everything; whoever waits is released."""
        self._closed = True
        self._idle.close()
        await self._writer.aclose()  # last, as only it can bring the log's pages into the file
