"""The live board of `watch`: what goes on, what waits, and keys to answer, end and find."""

ROOMS = (
    "live",  # the board on a terminal, with its keys, until somebody leaves it
    "layout",  # the board as lines of a terminal
    "details",  # one row in full
    "rows",  # a waiting call, a run, a block as lines
    "screen",  # what is selected, asked and noted, as keys change it
    "keys",  # keys of a terminal, as they are pressed
    "board",  # what is shown, read from the store
)
"""Top first: each imports only those below it."""
