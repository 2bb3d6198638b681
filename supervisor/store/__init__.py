"""How records are kept: what a store makes of an event, what it refuses, and the store in memory."""

ROOMS = (
    "maintenance",
    "memory_store",
    "memory_tables",
    "invariants",
    "records",
)
"""Top first: each imports only those below it."""
