"""Reads and changes the rows of a SQLite store behind its back."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any


def stored_rows(store: Path | str, sql: str, values: tuple[Any, ...] = ()) -> list[Any]:
    """The rows that a statement gives on the store's file; what it changes is committed."""
    with closing(sqlite3.connect(store)) as connection, connection:
        return connection.execute(sql, values).fetchall()
