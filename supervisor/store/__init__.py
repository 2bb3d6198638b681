"""How stores keep records: what they make of events, what they reject, and the store in memory."""

ROOMS = ("maintenance", "memory_store", "memory_tables", "invariants", "records")
"""Top first: each imports only those below it."""
