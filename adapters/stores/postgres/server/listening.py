"""What other processes store: heard of from the server, and looked for now and then, as a notice may be lost."""

from __future__ import annotations

import threading
from contextlib import suppress

import psycopg
from psycopg import sql

from proctor.supervisor.errors import StoreError

from ...wakeups import Bell
from ..connection.connecting import Address, Connection
from ..connection.line import Line

_LOOK_EVERY_S = 1.0
_AGAIN_S = 0.5
_LATEST = """SELECT (SELECT max(position) FROM events), (SELECT max(number) FROM instructions),
    (SELECT max(number) FROM runs)"""


class Listener:
    """A thread that rings the bell for what others store; it begins when somebody first waits.

    Args:
        address: where the store is.
        bell: what it rings.
        own: what the notices of this store say, which the bell was rung for already.
    """

    def __init__(self, address: Address, bell: Bell, own: str) -> None:
        self._own = own
        self._schema = address.schema
        self._bell = bell
        self._line = Line(address, 0, lambda connection: None)
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._began = threading.Event()
        self._latest: object = None
        self._thread: threading.Thread | None = None

    @property
    def began(self) -> bool:
        """Whether it listens."""
        return self._began.is_set()

    def begin(self) -> None:
        """Listen; on return nothing is missed any more that is stored."""
        with self._lock:
            if self._ended.is_set():
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="proctor-postgres-listens", daemon=True)
                self._thread.start()
        self._began.wait()

    def end(self) -> None:
        """Listen no more."""
        self._ended.set()
        self._line.cut()
        with self._lock:
            if self._thread is not None:
                self._thread.join()

    def _run(self) -> None:
        while not self._ended.is_set():
            with suppress(psycopg.Error, StoreError):
                self._listen(self._line.connection)
            self._line.drop()
            self._began.set()
            self._ended.wait(_AGAIN_S)
        self._began.set()

    def _listen(self, connection: Connection) -> None:
        connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._schema)))
        while not self._ended.is_set():
            self._look(connection)
            for notice in connection.notifies(timeout=_LOOK_EVERY_S, stop_after=1):
                if notice.payload != self._own:
                    self._bell.ring()

    def _look(self, connection: Connection) -> None:
        latest = connection.execute(_LATEST).fetchone()
        if self._began.is_set() and latest != self._latest:
            self._bell.ring()
        self._latest = latest
        self._began.set()
