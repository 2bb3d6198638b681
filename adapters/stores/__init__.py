"""Stores: where the record of sessions is kept.

    sqlite      one file, durable, any number of processes on one machine
    postgres    a PostgreSQL database, durable, any number of machines (extra `postgres`)

`MemoryStore`, the one without a file, is the supervisor's own. Each is imported when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proctor.supervisor.lazily import lazily

if TYPE_CHECKING:
    from proctor.supervisor.store.memory.store import MemoryStore

    from .postgres import PostgresStore
    from .sqlite import SQLiteStore
    from .store_names import open_store

__all__ = ["MemoryStore", "PostgresStore", "SQLiteStore", "open_store"]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "..supervisor.store.memory.store": "MemoryStore",
        "store_names": "open_store",
        "postgres": "PostgresStore",
        "sqlite": "SQLiteStore",
    },
)

ROOMS = (
    "audit",  # whether a record is what was written, and all of it
    "store_names",  # a store by the name that people give it
    "postgres",  # a PostgreSQL database, any number of machines
    "sqlite",  # one file, any number of processes on one machine
    "tables",  # what stores do alike in the tables of every database
    "wakeups",  # from a writer's thread back to the tasks that wait
)
"""Top first: each imports only those below it."""
