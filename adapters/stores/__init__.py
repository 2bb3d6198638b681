"""Stores of session records.

    sqlite      one file, durable, any number of processes on one machine
    postgres    a PostgreSQL database, durable, any number of machines (extra `postgres`)

`MemoryStore`, the one without a file, is the supervisor's own. Each is imported when it is used.
"""

from typing import TYPE_CHECKING

from proctor.supervisor import lazily

if TYPE_CHECKING:
    from proctor.supervisor.store.memory_store import MemoryStore

    from .postgres import PostgresStore
    from .sqlite import SQLiteStore
    from .store_names import open_store

__all__ = ["MemoryStore", "PostgresStore", "SQLiteStore", "open_store"]
__getattr__, __dir__ = lazily(
    __name__,
    {
        "..supervisor.store.memory_store": "MemoryStore",
        "postgres": "PostgresStore",
        "sqlite": "SQLiteStore",
        "store_names": "open_store",
    },
)
ROOMS = ("audit", "store_names", "postgres", "sqlite", "tables")
"""Top first: each imports only those below it."""
