"""A store in a PostgreSQL database: durable, for any number of processes on any number of machines."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from proctor.supervisor.errors import UsageError

if TYPE_CHECKING:
    from .store import PostgresStore

__all__ = ["PostgresStore"]


def __getattr__(name: str) -> Any:
    if name == "PostgresStore":
        if find_spec("psycopg") is None:
            raise UsageError("a store in PostgreSQL needs psycopg: pip install 'proctor[postgres]'")
        from .store import PostgresStore

        return PostgresStore
    raise AttributeError(f"module `{__name__}` has no attribute `{name}`")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


ROOMS = (
    "store",  # the Store itself
    "reading",  # connections that only read, in worker threads
    "listening",  # what other processes store, heard of from the server
    "writing",  # the one thread that writes, many appends a transaction
    "pruning",  # a session's record removed, and how much room the rest takes
    "claiming",  # who owns a run
    "desk",  # what people answer and order
    "queries",  # what is asked of a store
    "recording",  # what one transaction writes
    "approval_rows",  # approvals as rows that follow from events
    "owners",  # owners as rows, and whether each is still there
    "rows",  # event rows, inserted by one statement
    "line",  # one connection, made anew when it is lost
    "schema",  # the tables, and how an older store becomes a current one
    "failures",  # an error of PostgreSQL as one of ours
    "connecting",  # connections to a store's database
    "texts",  # any text in a column, which cannot hold every character
)
"""Top first: each imports only those below it."""
