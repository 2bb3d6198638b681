"""Look at a file before it is touched; open it for writing.

INVARIANT: a file that is refused is left as it was. So the first look is at its bytes, the second through
a connection that cannot write.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from pathlib import Path

from proctor.supervisor.errors import StoreError

from ..schema.tables import APPLICATION_ID, bring_up_to_date, check_version
from .descriptors import HEADER_SIZE, Connection, beside, connect, read_header
from .failures import primary_code, store_error
from .header import MAGIC, is_cut_short

_CHECKED_WHOLE = 16 * 1024 * 1024
"""A file up to this size is checked page by page when it is opened, a larger one as it is read."""
_WAL_PAGES_BEFORE_CHECKPOINT = 2000
_WRITER_CACHE_KIB = 16 * 1024


def open_for_writing(path: Path, *, synchronous: str, busy_timeout_s: float, max_bytes: int | None) -> Connection:
    """Open a store, creating or migrating it. Raises StoreError, the file untouched, when it is not one."""
    try:
        _look(path, busy_timeout_s)
        _make_private(path)
        connection = connect(path, "rwc", busy_timeout_s=busy_timeout_s)
        try:
            _set_up(connection, path, synchronous, busy_timeout_s, max_bytes)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise (_truncated(path) if is_cut_short(path) else store_error(error, path)) from error
    except OSError as error:
        hint = "write to" if isinstance(error, PermissionError) else "make a file at"
        reason = (error.strerror or str(error)).lower()
        raise StoreError(
            f"store `{path}` cannot be opened: {reason}; choose a path that you can {hint}", kind="unwritable"
        ) from error
    return connection


def _make_private(path: Path) -> None:
    """A new store is its owner's alone, and so are the logs SQLite keeps beside it: prompts and outputs are in it."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def _look(path: Path, busy_timeout_s: float) -> None:
    if not path.parent.is_dir():
        raise StoreError(f"directory `{path.parent}` does not exist; create it first", kind="unwritable")
    if path.is_dir():
        raise StoreError(f"`{path}` is a directory; name a file in it", kind="unwritable")
    header = read_header(path)
    if not header:
        return
    if not header.startswith(MAGIC[: len(header)]):
        raise StoreError(f"`{path}` is not a proctor store; choose another path", kind="not_a_store")
    if len(header) < HEADER_SIZE:
        raise _truncated(path)
    if int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        raise StoreError(f"`{path}` is a database of another program; choose another path", kind="not_a_store")
    if is_cut_short(path) and not _has_log(path) and is_cut_short(path):
        raise _truncated(path)  # looked at twice: between the looks another process may have written
    if not beside(path, "-journal").exists():  # one that is left over is undone by the first writer
        _look_inside(path, busy_timeout_s)


def _look_inside(path: Path, busy_timeout_s: float) -> None:
    connection = connect(path, "ro", busy_timeout_s=busy_timeout_s)
    try:
        check_version(connection, path)
        if path.stat().st_size <= _CHECKED_WHOLE:
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if found != "ok":
                detail = str(found).splitlines()[-1]
                raise StoreError(
                    f"store `{path}` is damaged: restore a copy, or choose another path ({detail})",
                    kind="corrupt",
                )
    finally:
        connection.close()


def _set_up(
    connection: sqlite3.Connection,
    path: Path,
    synchronous: str,
    busy_timeout_s: float,
    max_bytes: int | None,
) -> None:
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute(f"PRAGMA cache_size = -{_WRITER_CACHE_KIB}")
    # The application id must reach the file itself before write-ahead logging begins: a first look reads it.
    bring_up_to_date(connection, path)
    _use_write_ahead_log(connection, path, busy_timeout_s)
    connection.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES_BEFORE_CHECKPOINT}")
    if max_bytes is not None:
        page_size = connection.execute("PRAGMA page_size").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {max(1, max_bytes // page_size)}")


def _use_write_ahead_log(connection: sqlite3.Connection, path: Path, busy_timeout_s: float) -> None:
    """Switching needs the file for itself, and SQLite does not wait for that on its own."""
    deadline = time.monotonic() + busy_timeout_s
    while True:
        try:
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        except sqlite3.OperationalError as error:
            if primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.005)
        else:
            break
    if mode != "wal":
        raise StoreError(
            f"store `{path}` is on a file system without shared memory; choose a local disk",
            kind="unwritable",
        )


def _truncated(path: Path) -> StoreError:
    return StoreError(f"store `{path}` is truncated: restore a copy, or choose another path", kind="truncated")


def _has_log(path: Path) -> bool:
    """Whether somebody is writing to the file, or was when it ended: then its length means nothing yet."""
    return any(beside(path, suffix).exists() for suffix in ("-wal", "-journal"))
