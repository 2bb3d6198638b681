"""The record as an auditor sees it: whether it is what was written, and whether all of it is there."""

ROOMS = (
    "audit",
    "database",
    "file",
    "sources",
    "list_checks",
    "verify",
    "heads",
)
"""Top first: each imports only those below it."""
