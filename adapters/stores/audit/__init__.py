"""Audits of a store: whether its records are as written, and whether they are complete."""

ROOMS = ("audit", "database", "sources", "list_checks", "verify")
"""Top first: each imports only those below it."""
