"""Connections that only read, used in worker threads, each for one query at a time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import anyio.to_thread
import psycopg

from proctor.supervisor.errors import StoreError

from ..connection.connecting import Address, Connection
from ..connection.failures import store_error
from ..connection.line import Line

T = TypeVar("T")

_KEPT = 4


class Readers:
    """A few idle connections; one more is opened when all are in use. `check` raises where none may be."""

    def __init__(
        self,
        address: Address,
        *,
        patience_s: float,
        same: Callable[[Connection], None],
        check: Callable[[], None],
    ) -> None:
        self._address = address
        self._patience_s = patience_s
        self._same = same
        self._check = check
        self._idle: list[Line] = []
        self._closed = False

    async def ask(self, query: Callable[[Connection], T]) -> T:
        """Run a query in a worker thread."""
        if self._closed:
            raise StoreError("the store is closed", kind="closed")
        self._check()
        return await anyio.to_thread.run_sync(self._ask, query, abandon_on_cancel=True)

    def close(self) -> None:
        """Close the idle connections; one in use closes when its query ends."""
        self._closed = True
        while self._idle:
            self._idle.pop().drop()

    def _ask(self, query: Callable[[Connection], T]) -> T:
        line = self._take()
        try:
            return line.ask(query)
        except psycopg.Error as error:
            line.drop()
            raise store_error(error, self._address.name) from error
        except BaseException:
            line.drop()
            raise
        finally:
            self._give_back(line)

    def _take(self) -> Line:
        with suppress(IndexError):
            return self._idle.pop()
        return Line(self._address, self._patience_s, self._same)

    def _give_back(self, line: Line) -> None:
        if self._closed or len(self._idle) >= _KEPT:
            line.drop()
        else:
            self._idle.append(line)
