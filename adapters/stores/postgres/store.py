"""The Store in a PostgreSQL database."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from queue import Empty
from typing import Any, TypeVar

import anyio
import psycopg
from psycopg import sql

from proctor.supervisor.errors import StoreError, UsageError
from proctor.supervisor.ports.store import Notifier
from proctor.supervisor.ports.stored_types import StoreSize

from ..tables.batches import Tables
from ..tables.queries import ReaderPool
from ..tables.store import Job, TableStore, Writer
from . import recording
from .connection import Address, Connection, ServerLink, bring_up_to_date, passes, store_error, tries, version_of
from .recording import Recorder

_POLL_S = 1.0
_AGAIN_S = 0.5
_ANSWER_S = 30.0
"""Seconds a server may take to answer a write, including a commit on its standbys."""
_FOUND_S = 120.0
"""Seconds it may take to answer a query: a tenant's few events may be looked for in the whole log."""
_LATEST = """SELECT (SELECT max(position) FROM events), (SELECT max(number) FROM instructions),
    (SELECT max(number) FROM runs)"""


class Listener:
    """A thread that notifies of other processes' writes, from the first waiter on; `own` is the payload of this
    store's own notices, which are ignored.
    """

    def __init__(self, address: Address, notifier: Notifier, own: str) -> None:
        self._own = own
        self._schema = address.schema
        self._notifier = notifier
        self._link = ServerLink(address, 0, lambda connection: None, _ANSWER_S)
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._began = threading.Event()
        self._latest: object = None
        self._thread: threading.Thread | None = None

    @property
    def began(self) -> bool:
        """Whether it was started."""
        return self._began.is_set()

    def begin(self) -> None:
        """Listen; on return, no later write is missed."""
        with self._lock:
            if self._ended.is_set():
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="proctor-postgres-listens", daemon=True)
                self._thread.start()
        self._began.wait()

    def end(self) -> None:
        """Stop listening."""
        self._ended.set()
        self._link.cut()
        with self._lock:
            if self._thread is not None:
                self._thread.join()

    def _run(self) -> None:
        while not self._ended.is_set():
            with suppress(psycopg.Error, StoreError):
                self._listen(self._link.connection)
            self._link.drop()
            self._began.set()
            self._ended.wait(_AGAIN_S)
        self._began.set()

    def _listen(self, connection: Connection) -> None:
        with suppress(psycopg.errors.ReadOnlySqlTransaction):  # a standby gives no notices: it is asked
            connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._schema)))
        while not self._ended.is_set():
            self._poll(connection)
            for notice in connection.notifies(timeout=_POLL_S):
                if notice.payload != self._own:
                    self._notifier.notify()

    def _poll(self, connection: Connection) -> None:
        latest = connection.execute(_LATEST).fetchone()
        if self._began.is_set() and latest != self._latest:
            self._notifier.notify()
        self._latest = latest
        self._began.set()


T = TypeVar("T")


class DatabaseReaders(ReaderPool[ServerLink]):
    """Reads a database; `same` raises for a new connection that finds another store."""

    abandons = True

    def __init__(
        self, address: Address, *, patience_s: float, same: Callable[[Connection], None], check: Callable[[], None]
    ) -> None:
        super().__init__(check)
        self._address = address
        self._patience_s = patience_s
        self._same = same

    async def query(self, query: Callable[[Connection], T]) -> T:
        """Run a query; one that is cancelled loses its connection and is not tried again, so that nothing waits for
        a server that is silent or gone.
        """
        waited_for = True
        at: list[ServerLink] = []

        def answered(link: ServerLink) -> T:
            at.append(link)
            try:
                if waited_for:
                    return link.query(query, given_up=lambda: not waited_for)
            except psycopg.Error:
                if waited_for:
                    raise
            finally:
                at.clear()
            raise StoreError("the query was cancelled", kind="closed")

        try:
            return await super().query(answered)
        finally:
            waited_for = False
            for link in tuple(at):
                link.interrupt()

    def _query(self, query: Callable[[ServerLink], T]) -> T:
        with self.lent() as link:
            try:
                return query(link)
            except psycopg.Error as error:
                link.drop()
                raise store_error(error, self._address.name) from error
            except BaseException:
                link.drop()
                raise

    def _open(self) -> ServerLink:
        return ServerLink(self._address, self._patience_s, self._same, _FOUND_S)

    def _drop(self, connection: ServerLink) -> None:
        connection.drop()


_EVENTS_A_TRANSACTION = 16_384
_CLOSING_S = 5.0


class PostgresWriter(Writer[Recorder]):
    """Owns the connection that writes. A transaction takes up to `_EVENTS_A_TRANSACTION` rows; a job that does not
    append has one of its own.
    """

    conflict = psycopg.IntegrityError
    broken = (psycopg.Error,)

    def __init__(self, link: ServerLink, name: str, notifier: Notifier) -> None:
        self._link = link
        super().__init__(Recorder(link), name, notifier)

    def _join(self) -> None:
        """Wait for the thread; after some seconds, cancel its wait for the server."""
        self._thread.join(_CLOSING_S)
        if self._thread.is_alive():
            self._link.cut()
            self._thread.join()

    def _next_jobs(self) -> list[Job[Any]]:
        jobs: list[Job[Any]] = []
        size = 0
        with suppress(Empty):
            job = self._held_over.pop() if self._held_over else self._queue.get()
            while job is not None:
                size += _EVENTS_A_TRANSACTION if job.batch is None else job.size
                if jobs and size > _EVENTS_A_TRANSACTION:
                    self._held_over = [job]
                    break
                jobs.append(job)
                job = self._queue.get_nowait()
        return jobs

    def _transact(self, jobs: list[Job[Any]], *, find_stored: bool) -> Exception | None:
        error: Exception | None = None
        for _ in tries(self._link.patience_s):
            try:
                self._attempt(jobs, find_stored)
            except Exception as raised:
                error = raised
                self._recorder.rollback()
                if not passes(raised):
                    return raised
                self._link.recover(raised)
            else:
                return None
        return error

    def _attempt(self, jobs: list[Job[Any]], find_stored: bool) -> None:
        batches = [job.batch for job in jobs if job.batch is not None]
        if batches:
            parts = [part for batch in batches for part in batch.parts]
            self._recorder.lock((part.session_id for part in parts), (part.run_id for part in parts))
        for job in jobs:
            self._work(job, find_stored)
        self._recorder.commit()

    def _is_of_one_job(self, error: Exception) -> bool:
        return isinstance(error, psycopg.DatabaseError) and not isinstance(error, psycopg.OperationalError)

    def _store_error(self, error: Exception) -> StoreError:
        return store_error(error, self._name)

    def _notify_others(self) -> None:
        with suppress(psycopg.Error, StoreError):
            self._recorder.notify()

    def _leave(self) -> None:
        with suppress(psycopg.Error, StoreError):
            self._recorder.leave()
        self._link.drop()


class PostgresStore(TableStore):
    """A store in a PostgreSQL database, which any number of processes and machines can share.

    The constructor creates or migrates the tables, if the role may do that.

    Args:
        url: `postgresql://USER@HOST:PORT/DATABASE?...`, as libpq has it.
        schema: the schema of its tables; several stores may be in one database.
        patience_s: seconds to retry if the server cannot be reached, or others keep something locked.
        make: create the tables if there are none.

    Raises:
        StoreError: the database cannot be used; `kind` says why.
        UsageError: an argument is wrong.
    """

    def __init__(self, url: str, *, schema: str = "proctor", patience_s: float = 10.0, make: bool = True) -> None:
        self._address = Address(url, schema)
        self.name = self._address.name
        self._store_id = self._open(patience_s, make=make)
        notifier = Notifier()
        link = ServerLink(self._address, patience_s, self._check_same, _ANSWER_S)
        writer = PostgresWriter(link, self.name, notifier)
        self._listener = Listener(self._address, notifier, link.application)
        readers = DatabaseReaders(
            self._address, patience_s=patience_s, same=self._check_same, check=writer.check_process
        )
        super().__init__(writer, readers, notifier, _server_ms)

    def _open(self, patience_s: float, *, make: bool) -> str:
        def ready(connection: Connection) -> str:
            if not make and not version_of(connection, self.name)[1]:
                raise UsageError(f"there is no store at `{self.name}`; `proctor store --make` creates one")
            return bring_up_to_date(connection, self.name, self._address.schema)

        link = ServerLink(self._address, patience_s, lambda connection: None, _ANSWER_S)
        try:
            return link.query(ready)
        except psycopg.Error as error:
            raise store_error(error, self.name) from error
        finally:
            link.drop()

    def _check_same(self, connection: Connection) -> None:
        """Raises StoreError if a new connection leads to another store."""
        store_id, _ = version_of(connection, self.name)
        if store_id != self._store_id:
            how = "was replaced by another one" if store_id else "is not there any more"
            raise StoreError(f"store `{self.name}` {how} while it was in use", kind="gone")

    async def size(self) -> StoreSize:
        """How much is stored; see `Store.size`."""
        return await self._readers.query(recording.size)

    async def compact(self) -> None:
        """Free the space of removed rows for reuse, as far as the role may."""
        await self._readers.query(recording.vacuum)

    async def _watching(self) -> AbstractContextManager[None]:
        """Listen for other processes' writes; without a notice, they are seen within a second."""
        if not self._listener.began:
            await anyio.to_thread.run_sync(self._listener.begin, abandon_on_cancel=True)
        return nullcontext()

    async def aclose(self) -> None:
        """Finish current work, then close the store and release waiting callers."""
        await super().aclose()
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._listener.end)


def _server_ms(tables: Tables) -> int:
    [(now_ms,)] = tables.rows("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
    return int(now_ms)
