"""How records are kept: the codec, paging, the store in memory."""

ROOMS = (
    "memory",  # a store in memory
    "selection",  # which runs a list is asked for
    "tally",  # what lists show of a run
    "codec",  # events as stores keep them
    "paging",  # all stored runs, page by page
)
"""Top first: each imports only those below it."""
