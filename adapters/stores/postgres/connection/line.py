"""One connection that is made anew when it is lost, within bounds."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

import psycopg
from psycopg import errors

from proctor.supervisor.errors import StoreError

from .connecting import Address, Connection, cut
from .failures import passes

T = TypeVar("T")

_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 1.0
# One that stands still between two statements of one message is `active` to the server, which waits for it for ever.
# Only those that this role may end: of its own, or of any with `pg_signal_backend`.
_END_STALLED = """SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name LIKE 'proctor %' AND pid <> pg_backend_pid()
    AND state = 'active' AND wait_event = 'ClientRead' AND state_change < clock_timestamp() - interval '5 seconds'
    AND (pg_has_role(usesysid, 'MEMBER') OR pg_has_role('pg_signal_backend', 'MEMBER'))"""


def tries(patience_s: float) -> Iterator[int]:
    """Count tries, with pauses between them that grow, until the time is up."""
    deadline = time.monotonic() + patience_s
    pause, n = _FIRST_PAUSE_S, 0
    while True:
        yield n
        n += 1
        if time.monotonic() + pause > deadline:
            return
        time.sleep(pause * random.uniform(0.5, 1))
        pause = min(2 * pause, _LONGEST_PAUSE_S)


class Line:
    """A connection to a store, used by one thread.

    Args:
        address: where the store is.
        patience_s: seconds for which a server that cannot be reached is tried again.
        check: called with each new connection; raises StoreError where that is not the store it was.
        answer_s: seconds in which an answer comes; None where that may take long.
    """

    def __init__(
        self, address: Address, patience_s: float, check: Callable[[Connection], None], answer_s: float | None = None
    ) -> None:
        self._address = address
        self.patience_s = patience_s
        self._check = check
        self._answer_s = answer_s
        self._connection: Connection | None = None
        self._lock = threading.Lock()
        self._ended = threading.Event()
        # A name of its own, by which the server's half of a lost connection is found, and ended.
        self.application = f"proctor {uuid.uuid4().hex}"

    @property
    def connection(self) -> Connection:
        """The connection, made now where there is none. Raises psycopg.Error or StoreError."""
        if not self.is_open:
            self._connect()
        assert self._connection is not None
        return self._connection

    @property
    def is_open(self) -> bool:
        """Whether there is a connection that was not lost."""
        return self._connection is not None and not self._connection.closed

    def ask(self, query: Callable[[Connection], T]) -> T:
        """Ask something that may be asked twice, again where the connection is lost. Raises as `connection` does."""
        lost: psycopg.Error | None = None
        for _ in tries(self.patience_s):
            try:
                return query(self.connection)
            except psycopg.Error as error:
                if not passes(error):
                    raise
                lost = error
                self.make_way(error)
                self.drop()
        assert lost is not None
        raise lost

    def make_way(self, error: BaseException) -> None:
        """After a lock was waited for in vain: end the writers that keep theirs because their process is stopped."""
        if isinstance(error, errors.LockNotAvailable):
            with suppress(psycopg.Error, StoreError):
                self.connection.execute(_END_STALLED)

    def drop(self) -> None:
        """Let the connection go."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()

    def cut(self) -> None:
        """End what the thread waits for on it, for good; from any thread."""
        with self._lock:
            self._ended.set()
            if self._connection is not None:
                cut(self._connection)

    def _connect(self) -> None:
        if self._ended.is_set():
            raise StoreError("the store is closed", kind="closed")
        connection = self._address.connect(self.application, answer_s=self._answer_s)
        try:
            self._check(connection)
            end_lost_halves(connection, self.application)
        except BaseException:
            connection.close()
            raise
        with self._lock:
            self._connection = connection
        if self._ended.is_set():
            cut(connection)


def end_lost_halves(connection: Connection, application: str) -> None:
    """Have the server end what it still does for lost connections of that name: what they began is settled then."""
    found = "pid != pg_backend_pid() AND datname = current_database() AND application_name = %s"
    connection.execute(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {found}", (application,))
