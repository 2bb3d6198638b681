"""The common part of every store in a database; each database adds how it connects and commits."""

ROOMS = ("store", "budgets", "claiming", "queries", "recording", "batches", "seals", "schema")
"""Top first: each imports only those below it."""
