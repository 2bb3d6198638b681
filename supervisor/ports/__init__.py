"""The interfaces to the outside: adapters, stores, approvers, publishers, and the records that cross them."""

ROOMS = ("adapter", "processes", "store", "budget_ledger", "stored_types")
"""Top first: each imports only those below it."""
