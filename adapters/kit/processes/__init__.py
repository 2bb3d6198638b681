"""Processes of clients and of commands, ended with everything they started."""

ROOMS = (
    "guarded",
    "guardian",
)
"""Top first: each imports only those below it."""
