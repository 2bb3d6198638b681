"""The file: found, opened, read and written by threads of its own."""

ROOMS = (
    "reading",  # connections that only read, in worker threads
    "copying",  # a copy of a store that is in use
    "opening",  # look at a file before it is touched
    "writing",  # the one thread that writes, many appends a transaction
    "presence",  # whether what was written is still in the file of that name
    "header",  # what the first bytes of a file say of it
    "descriptors",  # connections, and the first bytes of a file that one may have open
    "failures",  # an error of SQLite as one of ours
)
"""Top first: each imports only those below it."""
