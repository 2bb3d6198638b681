"""Connections that only read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Generic, TypeVar

import anyio.to_thread

from proctor.supervisor.errors import StoreError

T = TypeVar("T")
ConnectionT = TypeVar("ConnectionT")
_KEPT = 4


class ReaderPool(ABC, Generic[ConnectionT]):
    """A few idle connections; one more is opened when all are in use.

    Args:
        check: raises where no connection may be used.
    """

    abandons: ClassVar[bool] = False
    """Whether a query that is cancelled is left to end by itself."""

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check
        self._idle: list[ConnectionT] = []
        self._closed = False

    async def query(self, query: Callable[[Any], T]) -> T:
        """Run a query on a connection, in a worker thread. Raises StoreError."""
        self.check_open()
        self._check()
        return await anyio.to_thread.run_sync(self._query, query, abandon_on_cancel=self.abandons)

    def check_open(self) -> None:
        """Raises StoreError for a pool that is closed."""
        if self._closed:
            raise StoreError("the store is closed", kind="closed")

    def close(self) -> None:
        """Close the idle connections; one in use closes when its query ends."""
        self._closed = True
        while self._idle:
            self._drop(self._idle.pop())

    @contextmanager
    def lent(self) -> Iterator[ConnectionT]:
        """A connection for one query; from any thread."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._open()
        try:
            yield connection
        finally:
            if self._closed or len(self._idle) >= _KEPT:
                self._drop(connection)
            else:
                self._idle.append(connection)

    @abstractmethod
    def _query(self, query: Callable[[Any], T]) -> T:
        """Run a query on a connection that is lent. Raises StoreError."""

    @abstractmethod
    def _open(self) -> ConnectionT:
        """One more connection."""

    @abstractmethod
    def _drop(self, connection: ConnectionT) -> None:
        """Close a connection."""
