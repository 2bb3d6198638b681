"""An error of SQLite as one of ours: what happened, to which file, and what to do."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from proctor.supervisor.errors import StoreError

_HINTS: dict[int, tuple[str, str]] = {
    sqlite3.SQLITE_FULL: ("unwritable", "is full: free space or raise `max_bytes`; reading still works"),
    sqlite3.SQLITE_READONLY: ("unwritable", "is read-only: make the file and its directory writable"),
    sqlite3.SQLITE_CANTOPEN: ("unwritable", "cannot be opened: its directory must exist and be writable"),
    sqlite3.SQLITE_PERM: ("unwritable", "may not be accessed: check its permissions"),
    sqlite3.SQLITE_BUSY: ("unwritable", "is locked by another process: stop that process or try again"),
    sqlite3.SQLITE_LOCKED: ("unwritable", "is locked by another process: stop that process or try again"),
    sqlite3.SQLITE_IOERR: ("unwritable", "cannot be read or written: check the disk"),
    sqlite3.SQLITE_CORRUPT: ("corrupt", "is damaged: restore a copy, or choose another path"),
    sqlite3.SQLITE_NOTADB: ("not_a_store", "is not a proctor store: choose another path"),
}
WHOLE_FILE = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_READONLY,
    }
)
"""Codes that say something about the file, not about what was to be written."""


def primary_code(error: Exception) -> int:
    """The primary result code, or 0 for an error that SQLite did not report."""
    return (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def store_error(error: Exception, path: Path) -> StoreError:
    """Say what went wrong with the file at `path`."""
    kind, hint = _HINTS.get(primary_code(error), ("unwritable", "cannot be used"))
    return StoreError(f"store `{path}` {hint} ({error})", kind=kind)
