"""The first bytes of a file that SQLite may have open, read without taking its locks from it.

A process loses its POSIX locks on a file when it closes any descriptor of that file
(https://sqlite.org/howtocorrupt.html, 2.2). Others then take the file for one that nobody uses, and remove the log
with what was committed to it. So as long as this process has a connection to a file, it keeps one descriptor of
it, and reads through that.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

from ...tables.asking import PAGE_BYTES, PAGE_ROWS
from ..statements.dialect import SQLITE

HEADER_SIZE = 100
INDEX_SIZE = 48
"""Of the head of a log's index, which stands there twice."""

_File: TypeAlias = tuple[int, int]


class Connection(sqlite3.Connection):
    """A connection that is counted as long as it is open."""

    dialect = SQLITE
    file: _File | None = None

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """The rows that a statement gives."""
        return self.execute(sql, values).fetchall()

    def page(self, columns: str, source: str, values: Sequence[Any], *, by: str, newest_first: bool) -> list[Any]:
        """The first rows by a column, `data` among their columns, as many as make a page."""
        order = "DESC" if newest_first else "ASC"
        found = self.execute(f"SELECT {columns} FROM {source} ORDER BY {by} {order} LIMIT {PAGE_ROWS}", values)
        data = columns.split(", ").index("data")
        page: list[Any] = []
        size = 0
        for row in found:
            page.append(row)
            size += len(row[data])
            if size >= PAGE_BYTES:
                found.close()
                break
        return page

    def close(self) -> None:
        """Close it; the descriptor of its file goes with the last one."""
        super().close()  # it may write the log into the file: nobody else waits for that
        with _lock:
            file, self.file = self.file, None
            if file is not None:
                _kept[file].leave()


class _Kept:
    """The descriptor of one file, and the number of its connections."""

    def __init__(self, file: _File, descriptor: int) -> None:
        self.file = file
        self.descriptor = descriptor
        self.index: int | None = None
        self.connections = 0

    def leave(self) -> None:
        self.connections -= 1
        if not self.connections:
            del _kept[self.file]
            os.close(self.descriptor)
            if self.index is not None:
                os.close(self.index)


_kept: dict[_File, _Kept] = {}
_lock = threading.Lock()


def connect(path: Path, mode: str, *, busy_timeout_s: float) -> Connection:
    """A connection in autocommit that any thread may use, one at a time; `mode` is ro, rw or rwc."""
    uri = f"file:{quote(os.fspath(path.absolute()))}?mode={mode}"
    settings: dict[str, Any] = {"timeout": busy_timeout_s, "isolation_level": None, "check_same_thread": False}
    with _lock:
        kept = _keep(path)
    try:
        connection = sqlite3.connect(uri, uri=True, factory=Connection, **settings)
    except BaseException:
        if kept is not None:
            with _lock:
                kept.leave()
        raise
    connection.file = None if kept is None else kept.file
    return connection


def read_header(path: Path) -> bytes:
    """The first bytes, fewer where there are fewer, none where there is no file. Raises OSError."""
    with _lock:
        try:
            kept = _kept.get(file_id(os.stat(path)))
        except FileNotFoundError:
            return b""
        if kept is not None:
            return os.pread(kept.descriptor, HEADER_SIZE, 0)
        with path.open("rb") as file:
            return file.read(HEADER_SIZE)


def read_index(path: Path) -> bytes:
    """The head of the index of a file's log, both times; none where this process has no connection to the file."""
    with _lock, suppress(OSError):
        kept = _kept.get(file_id(os.stat(path)))
        if kept is not None:
            if kept.index is None:
                kept.index = os.open(beside(path, "-shm"), os.O_RDONLY | os.O_CLOEXEC)
            return os.pread(kept.index, 2 * INDEX_SIZE, 0)
    return b""


def _keep(path: Path) -> _Kept | None:
    """Count one more connection to a file, if it is there."""
    with suppress(OSError):  # SQLite will say what is wrong
        file = file_id(os.stat(path))
        if file not in _kept:
            _kept[file] = _Kept(file, os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        _kept[file].connections += 1
        return _kept[file]
    return None


def beside(path: Path, suffix: str) -> Path:
    """What SQLite keeps beside a file: beside the file itself, where the path is a link."""
    return Path(f"{os.path.realpath(path)}{suffix}")


def file_id(found: os.stat_result) -> _File:
    """Which file it is, whatever it is called."""
    return found.st_dev, found.st_ino
