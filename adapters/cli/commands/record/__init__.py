"""Commands that keep the record: audited, pruned, moved."""

ROOMS = (
    "audit",  # `audit head` and `audit verify`
    "prune",  # `prune`
    "store",  # `store`
    "transfer",  # `export` and `import`
)
"""Top first: each imports only those below it."""
