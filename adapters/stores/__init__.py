"""Stores: where the record of sessions is kept.

    sqlite      one file, durable, any number of processes on one machine
    postgres    a PostgreSQL database, durable, any number of machines (extra `postgres`)

`MemoryStore`, the one without a file, is the supervisor's own. Each is imported when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proctor.supervisor.store.memory.store import MemoryStore

    from .naming import open_store
    from .postgres import PostgresStore
    from .sqlite import SQLiteStore

__all__ = ["MemoryStore", "PostgresStore", "SQLiteStore", "open_store"]


def __getattr__(name: str) -> Any:
    if name == "MemoryStore":
        from proctor.supervisor.store.memory.store import MemoryStore

        return MemoryStore
    if name == "PostgresStore":
        from .postgres import PostgresStore

        return PostgresStore
    if name == "SQLiteStore":
        from .sqlite import SQLiteStore

        return SQLiteStore
    if name == "open_store":
        from .naming import open_store

        return open_store
    raise AttributeError(f"module `{__name__}` has no attribute `{name}`")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


ROOMS = (
    "audit",  # whether a record is what was written, and all of it
    "naming",  # a store by the name that people give it
    "postgres",  # a PostgreSQL database, any number of machines
    "sqlite",  # one file, any number of processes on one machine
    "tables",  # what stores do alike in the tables of every database
    "row_changes",  # what events change in rows, in every database alike
    "wakeups",  # from a writer's thread back to the tasks that wait
)
"""Top first: each imports only those below it."""
