"""Rows of events, gathered and then inserted by one statement, however many there are.

sqlite3 gives up the interpreter lock once a statement, and with a busy event loop each time it wants it back
can take 5 ms. So all rows go in as three values: their columns as JSON, the bytes of their events one after
another, and the state of the file they were made for.
"""

from __future__ import annotations

import sqlite3
from typing import TypeAlias

import msgspec

Columns: TypeAlias = tuple[int, int, str, str | None, str, int | None, int, int]
"""A row but for its last column, then where that begins among the bytes (from 1) and how long it is."""

_COLUMNS = ",".join(f"json_extract(value, '$[{n}]')" for n in range(6))
# OR ROLLBACK: without it the statement keeps an undo log.
_INSERT = (
    f"INSERT OR ROLLBACK INTO events SELECT {_COLUMNS},"
    " substr(?2, json_extract(value, '$[6]'), json_extract(value, '$[7]')) FROM json_each(?1)"
    " WHERE (SELECT data_version FROM pragma_data_version) = ?3"
)
_INSERT_ONE = "INSERT OR ROLLBACK INTO events VALUES (?,?,?,?,?,?,?)"
_MOST_BYTES = 64 * 1024 * 1024
_NUL = b"\\u0000"
"""SQLite's JSON functions cut text off at this character."""
_encode = msgspec.json.Encoder().encode


class Rows:
    """Rows not yet written: `columns[n]` and `data[n]` are one, `size` is that of all `data`."""

    __slots__ = ("columns", "data", "size")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget them."""
        self.columns: list[Columns] = []
        self.data: list[bytes] = []
        self.size = 0

    def insert(self, connection: sqlite3.Connection, data_version: int) -> bool:
        """Insert all, if no other connection has written since that version; False when none was inserted.

        Rows that do not fit one statement are not inserted either: see `insert_each`.
        """
        columns = _encode(self.columns)
        if self.size > _MOST_BYTES or _NUL in columns:
            return False
        values = (columns.decode(), b"".join(self.data), data_version)
        return connection.execute(_INSERT, values).rowcount == len(self.columns)

    def insert_each(self, connection: sqlite3.Connection) -> None:
        """Insert them one by one; to be done within a transaction."""
        rows = ((*columns[:6], data) for columns, data in zip(self.columns, self.data, strict=True))
        connection.executemany(_INSERT_ONE, rows)
