"""What is written in the tables, and asked of them, where that is PostgreSQL's own."""

ROOMS = (
    "room",  # how much room the record takes
    "recording",  # what one transaction writes
    "rows",  # event rows, inserted by one statement
)
"""Top first: each imports only those below it."""
