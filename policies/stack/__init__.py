"""Several policies merged left to right, and their clauses resolved once."""

ROOMS = ("clauses", "locks", "merge")
"""Top first: each imports only those below it."""
