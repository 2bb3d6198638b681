"""The Store in a PostgreSQL database."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import anyio.to_thread
import psycopg

from proctor.supervisor.errors import StoreError, UsageError
from proctor.supervisor.ports.facts import StoreSize

from ..tables.asking import Tables
from ..tables.store import TableStore
from ..wakeups import Bell
from .connection.connecting import Address, Connection
from .connection.failures import store_error
from .connection.line import Line
from .schema import bring_up_to_date, version_of
from .server.listening import Listener
from .server.reading import Readers
from .server.writing import PostgresWriter
from .statements import room

_ANSWER_S = 30.0
"""Seconds in which a server answers what is written, a commit on its standbys included."""


class PostgresStore(TableStore):
    """Keeps the record in a database, which any number of processes on any number of machines may share.

    The tables are created or migrated here and now, where the role may do that.

    Args:
        url: `postgresql://USER@HOST:PORT/DATABASE?...`, as libpq has it.
        schema: the schema of its tables; several stores may be in one database.
        patience_s: seconds for which a server that cannot be reached, or what others keep locked, is tried
            again before that is an error.
        make: make the tables where there are none.

    Raises:
        StoreError: the database cannot be used; `kind` says why.
        UsageError: an argument makes no sense.
    """

    def __init__(self, url: str, *, schema: str = "proctor", patience_s: float = 10.0, make: bool = True) -> None:
        self._address = Address(url, schema)
        self.name = self._address.name
        self._store_id = self._open(patience_s, make=make)
        bell = Bell()
        line = Line(self._address, patience_s, self._check_same, _ANSWER_S)
        writer = PostgresWriter(line, self.name, bell)
        self._listener = Listener(self._address, bell, line.application)
        self._idle = Readers(self._address, patience_s=patience_s, same=self._check_same, check=writer.check_process)
        super().__init__(writer, self._idle, bell, _server_ms)

    def _open(self, patience_s: float, *, make: bool) -> str:
        def ready(connection: Connection) -> str:
            if not make and not version_of(connection, self.name)[1]:
                raise UsageError(f"there is no store at `{self.name}`; `proctor store --make` makes one")
            return bring_up_to_date(connection, self.name, self._address.schema)

        line = Line(self._address, patience_s, lambda connection: None)
        try:
            return line.ask(ready)
        except psycopg.Error as error:
            raise store_error(error, self.name) from error
        finally:
            line.drop()

    def _check_same(self, connection: Connection) -> None:
        """Raises StoreError where a new connection finds another store than was opened."""
        store_id, _ = version_of(connection, self.name)
        if store_id != self._store_id:
            how = "was replaced by another one" if store_id else "is not there any more"
            raise StoreError(f"store `{self.name}` {how} while it was in use", kind="gone")

    async def size(self) -> StoreSize:
        """How much is stored; see `Store.size`."""
        return await self._readers.ask(room.size)

    async def compact(self) -> None:
        """Let the room of what was removed be used again, as far as the role may."""
        await self._readers.ask(room.give_back)

    async def wait(self, token: int, timeout_s: float) -> int:
        """Return when something was stored since `token` or the time is up; see `Store.wait`.

        What other processes store is heard of at once, and seen within a second where the notice is lost.
        """
        self._check_open()
        if not self._listener.began:
            await anyio.to_thread.run_sync(self._listener.begin)
        with self._bell.listening(token) as rung:
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
        await self._writer.aclose()
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._listener.end)


def _server_ms(tables: Tables) -> int:
    [(now_ms,)] = tables.rows("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
    return int(now_ms)
