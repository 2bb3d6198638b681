"""A store in one SQLite file: durable, for any number of processes on one machine.

`opening`, `recording` and `queries` serve a program that writes by itself, without the writer's thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .store import SQLiteStore

__all__ = ["SQLiteStore"]


def __getattr__(name: str) -> Any:
    if name == "SQLiteStore":
        from .store import SQLiteStore

        return SQLiteStore
    raise AttributeError(f"module `{__name__}` has no attribute `{name}`")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


ROOMS = (
    "store",  # the Store itself
    "log",  # the events of all sessions, in one order
    "reading",  # connections that only read, in worker threads
    "opening",  # look at a file before it is touched; connect
    "writing",  # the one thread that writes, many appends a transaction
    "pruning",  # a session's record removed, and the room it took given back
    "claiming",  # who owns a run
    "queries",  # what is asked of a file
    "presence",  # whether what was written is still in the file of that name
    "header",  # what the first bytes of a file say of it
    "failures",  # an error of SQLite as one of ours
    "recording",  # what one transaction writes
    "desk",  # approvals, and what people answer and order
    "owners",  # owners as rows, and whether each is still there
    "rows",  # event rows, made where they are appended and inserted by one statement
    "run_lines",  # what lists show of a run, in its row
    "schema",  # the tables, and how an older file becomes a current one
    "ordering",  # the step to events in one order, and to the columns of runs that lists show
    "chaining",  # the step to records that are tied together
    "wakeups",  # from the writer's thread back to the tasks that wait
)
"""Top first: each imports only those below it."""
