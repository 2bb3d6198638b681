"""The record as an auditor sees it: whether it is what was written, and whether all of it is there."""

ROOMS = (
    "audit",
    "database",
    "sources",
    "list_checks",
    "verify",
)
"""Top first: each imports only those below it."""
