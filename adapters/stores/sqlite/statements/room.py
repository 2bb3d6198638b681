"""How much room the record takes, and that which nothing takes given back."""

from __future__ import annotations

import sqlite3
from contextlib import suppress

from proctor.supervisor.ports.facts import StoreSize

from ..schema.tables import pragma

STEP_PAGES = 1000
"""Pages given back at a time: others write in between."""
_INCREMENTAL = 2
_GOING_ON = "status IN ('created', 'running')"


def give_back(connection: sqlite3.Connection) -> bool:
    """Give back some of the room that nothing takes; whether there is more. Outside of a transaction."""
    if pragma(connection, "auto_vacuum") == _INCREMENTAL:
        # `execute` would leave it after the first page: it yields rows of no columns, one a page.
        connection.executescript(f"PRAGMA incremental_vacuum({STEP_PAGES})")
        if pragma(connection, "freelist_count"):
            return True
    elif not connection.execute(f"SELECT EXISTS (SELECT 1 FROM runs WHERE {_GOING_ON})").fetchone()[0]:
        # A file of before: it is written anew, once, while nobody waits for it.
        connection.execute(f"PRAGMA auto_vacuum = {_INCREMENTAL}")
        connection.execute("VACUUM")
    with suppress(sqlite3.OperationalError):  # somebody reads: whoever writes next does it
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return False


def size(connection: sqlite3.Connection) -> StoreSize:
    """See `Store.size`."""
    page_size = pragma(connection, "page_size")
    (sessions,) = connection.execute("SELECT count(*) FROM sessions").fetchone()
    (events,) = connection.execute("SELECT count(*) FROM events").fetchone()
    return StoreSize(
        sessions=sessions,
        runs=dict(connection.execute("SELECT status, count(*) FROM runs GROUP BY status").fetchall()),
        events=events,
        bytes=pragma(connection, "page_count") * page_size,
        free_bytes=pragma(connection, "freelist_count") * page_size,
    )
