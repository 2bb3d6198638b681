"""One connection: made, named, made anew when it is lost."""

ROOMS = (
    "line",  # one connection, made anew when it is lost
    "failures",  # an error of PostgreSQL as one of ours
    "connecting",  # connections to a store's database
    "dialect",  # what PostgreSQL says in its own way
    "texts",  # any text in a column, which cannot hold every character
)
"""Top first: each imports only those below it."""
