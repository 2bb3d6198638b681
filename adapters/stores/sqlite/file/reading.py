"""Connections that only read, used in worker threads, each for one query at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread

from proctor.supervisor.errors import StoreError

from .descriptors import Connection, connect
from .failures import store_error
from .presence import SameFile

T = TypeVar("T")

_KEPT = 4


class Readers:
    """A few idle connections; one more is opened when all are in use. `check` raises where none may be."""

    def __init__(self, path: Path, *, busy_timeout_s: float, check: Callable[[], None]) -> None:
        self._check = check
        self._path = path
        self._busy_timeout_s = busy_timeout_s
        self._idle: list[Connection] = []
        self._closed = False
        self._same = SameFile(path)

    async def ask(self, query: Callable[[Connection], T]) -> T:
        """Run a query in a worker thread."""
        if self._closed:
            raise StoreError("the store is closed", kind="closed")
        self._check()
        return await anyio.to_thread.run_sync(self._ask, query)

    async def alone(self, work: Callable[[Connection], T]) -> T:
        """Do something, in a worker thread, on a connection of its own that may write."""
        if self._closed:
            raise StoreError("the store is closed", kind="closed")
        return await anyio.to_thread.run_sync(self._alone, work)

    def _alone(self, work: Callable[[Connection], T]) -> T:
        try:
            with closing(connect(self._path, "rw", busy_timeout_s=self._busy_timeout_s)) as connection:
                return work(connection)
        except sqlite3.Error as error:
            raise store_error(error, self._path) from error

    def close(self) -> None:
        """Close the idle connections; one in use closes when its query ends."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def _ask(self, query: Callable[[Connection], T]) -> T:
        self._same.found()
        try:
            connection = self._take()
            try:
                return query(connection)
            finally:
                self._give_back(connection)
        except sqlite3.Error as error:
            raise store_error(error, self._path) from error

    def _take(self) -> Connection:
        try:
            return self._idle.pop()
        except IndexError:
            return connect(self._path, "ro", busy_timeout_s=self._busy_timeout_s)

    def _give_back(self, connection: Connection) -> None:
        if self._closed or len(self._idle) >= _KEPT:
            connection.close()
        else:
            self._idle.append(connection)
