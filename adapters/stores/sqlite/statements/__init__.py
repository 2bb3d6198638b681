"""What is written in the tables, and what is asked of them."""

ROOMS = (
    "log",  # the events of all sessions, in one order
    "pruning",  # a session's record removed, and the room it took given back
    "budgets",  # budgets that runs share
    "claiming",  # who owns a run
    "queries",  # what is asked of a file
    "recording",  # what one transaction writes
    "desk",  # approvals, and what people answer and order
    "owners",  # owners as rows, and whether each is still there
    "rows",  # event rows, made where they are appended and inserted by one statement
    "run_lines",  # what lists show of a run, in its row
)
"""Top first: each imports only those below it."""
