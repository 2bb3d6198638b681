"""How records are kept: the codec, paging, the store in memory."""

ROOMS = (
    "maintenance",
    "memory_store",
    "memory_ledger",
    "memory_tables",
    "codec",
    "invariants",
    "run_index",
)
"""Top first: each imports only those below it."""
