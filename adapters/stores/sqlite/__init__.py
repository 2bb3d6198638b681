"""A store in one SQLite file: durable, for any number of processes on one machine.

`file` and `recording` also serve a program that writes by itself, without the writer's thread.
"""

from typing import TYPE_CHECKING

from proctor.supervisor import lazily

if TYPE_CHECKING:
    from .store import SQLiteStore

__all__ = ["SQLiteStore"]
__getattr__, __dir__ = lazily(__name__, {"store": "SQLiteStore"})
ROOMS = ("store", "file", "sealed", "recording")
"""Top first: each imports only those below it."""
