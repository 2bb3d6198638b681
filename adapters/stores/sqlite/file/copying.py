"""A copy of a store as it is at one moment, made while others write."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from proctor.adapters.kit.whole_file import whole_file
from proctor.supervisor.errors import StoreError, UsageError

from ..schema.tables import check_version
from .descriptors import connect
from .failures import store_error

_ALL_PAGES = -1
"""In one step: a copy in several begins anew whenever another process has written meanwhile."""


def copy_store(path: Path, target: Path, *, busy_timeout_s: float = 30.0) -> int:
    """Copy a store to a file that is not there yet, which is its owner's alone; returns its bytes.

    The copy is a store like any other, whole or not there. Nobody who writes has to wait.

    Raises:
        StoreError: the store cannot be read, or the copy cannot be written; `kind` says why.
        UsageError: there is something at `target` already.
    """
    if target.exists() or target.is_symlink():
        raise UsageError(f"`{target}` is there already; a copy is a new file")
    try:
        with closing(connect(path, "ro", busy_timeout_s=busy_timeout_s)) as source:
            check_version(source, path)
            with whole_file(target, mode=0o600) as file, closing(sqlite3.connect(file.name)) as copy:
                source.backup(copy, pages=_ALL_PAGES)
                copy.execute("PRAGMA journal_mode = DELETE")  # one file, also after somebody has read it
    except sqlite3.Error as error:
        raise store_error(error, path) from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise StoreError(f"`{target}` cannot be written: {reason}", kind="unwritable") from error
    return target.stat().st_size
