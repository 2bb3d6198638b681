"""What is written in the tables, and asked of them."""

ROOMS = (
    "pruning",  # a session's record removed, and how much room the rest takes
    "budgets",  # budgets that runs share
    "claiming",  # who owns a run
    "desk",  # what people answer and order
    "queries",  # what is asked of a store
    "recording",  # what one transaction writes
    "approval_rows",  # approvals as rows that follow from events
    "owners",  # owners as rows, and whether each is still there
    "rows",  # event rows, inserted by one statement
)
"""Top first: each imports only those below it."""
