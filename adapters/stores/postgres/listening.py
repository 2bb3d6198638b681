"""What other processes store: heard of from the server, and looked for now and then, as a notice may be lost."""

from __future__ import annotations

import threading
from contextlib import suppress

import psycopg
from psycopg import sql

from proctor.supervisor.errors import StoreError

from ..sqlite.wakeups import Bell
from .connecting import Address, Connection
from .line import Line

_LOOK_EVERY_S = 1.0
_AGAIN_S = 0.5
_LATEST = """SELECT (SELECT max(position) FROM events), (SELECT max(number) FROM instructions),
    (SELECT max(number) FROM runs)"""


class Listener:
    """A thread that rings the bell; it begins when somebody first waits."""

    def __init__(self, address: Address, bell: Bell) -> None:
        self._schema = address.schema
        self._bell = bell
        self._line = Line(address, 0, lambda connection: None)
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Listen, from now on."""
        with self._lock:
            if self._thread is None and not self._ended.is_set():
                self._thread = threading.Thread(target=self._run, name="proctor-postgres-listens", daemon=True)
                self._thread.start()

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
            self._bell.ring()  # nobody knows what was stored meanwhile
            self._ended.wait(_AGAIN_S)

    def _listen(self, connection: Connection) -> None:
        connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._schema)))
        latest = None
        while not self._ended.is_set():
            found = connection.execute(_LATEST).fetchone()
            if found != latest:
                latest = found
                self._bell.ring()
            for _ in connection.notifies(timeout=_LOOK_EVERY_S, stop_after=1):
                self._bell.ring()
