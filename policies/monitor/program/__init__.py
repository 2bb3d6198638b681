"""A stack as machines, indexed by the tools they name."""

ROOMS = (
    "build",  # a stack as machines, indexed by the tools they name
    "index",  # compiled rules, and what calls of a tool mean to them
)
"""Top first: each imports only those below it."""
