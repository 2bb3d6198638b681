"""What a store does alike in the tables of every database: a database of its own adds how it connects and commits."""

ROOMS = (
    "store",  # the Store over a thread that writes and connections that read
    "writing",  # the thread that writes, and what is queued for it
    "pruning",  # a session's record removed
    "budgets",  # budgets that runs share
    "claiming",  # who owns a run
    "approvals_and_orders",  # what people answer and order
    "queries",  # what is asked of a store
    "recording",  # what one transaction writes
    "row_state",  # what a transaction knows of sessions and runs
    "seals",  # digests of rows that no event tells of
    "owners",  # owners as rows, and whether each is still there
    "asking",  # how statements reach a database, and what each says in its own way
    "run_changes",  # what events change in the row of their run
    "batch",  # what one append stores, made where it is appended
)
"""Top first: each imports only those below it."""
