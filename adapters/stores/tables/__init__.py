"""What a store does alike in the tables of every database: a database of its own adds how it connects and commits."""

ROOMS = (
    "store",
    "budgets",
    "claiming",
    "writer",
    "queries",
    "readers",
    "recording",
    "seals",
    "transactions",
    "schema",
)
"""Top first: each imports only those below it."""
