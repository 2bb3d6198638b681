"""What a store does with the server: write, read, listen."""

ROOMS = (
    "writing",  # the one thread that writes, many appends a transaction
    "reading",  # connections that only read, in worker threads
    "listening",  # what other processes store, heard of from the server
)
"""Top first: each imports only those below it."""
