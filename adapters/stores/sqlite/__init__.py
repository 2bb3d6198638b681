"""A store in one SQLite file: durable, for any number of processes on one machine.

failures    an error of SQLite as one of ours
schema      the tables, and how an older file becomes a current one
opening     look at a file before it is touched; connect
wakeups     from the writer's thread back to the tasks that wait
recording   what one transaction writes
writing     the one thread that writes, many appends a transaction
reading     connections that only read, in worker threads
store       the Store itself
"""

from .store import SQLiteStore

__all__ = ["SQLiteStore"]
