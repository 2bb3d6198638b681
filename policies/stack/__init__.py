"""Several policies merged left to right, and their clauses resolved once."""
