"""The tables, and how an older file becomes a current one."""

ROOMS = (
    "tables",  # the tables, and how an older file becomes a current one
    "ordering",  # the step to events in one order, and to the columns of runs that lists show
    "chaining",  # the step to records that are tied together
)
"""Top first: each imports only those below it."""
