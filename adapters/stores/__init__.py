"""Stores: where the record of sessions is kept.

    sqlite      one file, durable, any number of processes on one machine

`MemoryStore`, the one without a file, is the supervisor's own.
"""

from proctor.supervisor.memory_store import MemoryStore

from .sqlite import SQLiteStore

__all__ = ["MemoryStore", "SQLiteStore"]
