"""Commands that write, check, draw and test policy files."""

ROOMS = (
    "check",  # `check`
    "graph",  # `graph`
    "init",  # `init`
    "migrate",  # `migrate` and `schema`
    "test",  # `test`
)
"""Top first: each imports only those below it."""
