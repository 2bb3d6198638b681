"""What is written in the tables, and what is asked of them, where that is SQLite's own."""

ROOMS = (
    "room",  # how much room the record takes, given back where nothing is
    "recording",  # what one transaction writes
    "rows",  # event rows, inserted by one statement
    "run_lines",  # what lists show of a run, in its row
    "dialect",  # what SQLite says in its own way
)
"""Top first: each imports only those below it."""
