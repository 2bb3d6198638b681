"""The record as an auditor sees it: whether it is what was written, and whether all of it is there."""

ROOMS = (
    "store_file",  # a store's file, read and never written
    "verifying",  # records checked one after another
    "signing",  # heads signed, and the signature checked
    "heads",  # where each session's record ends, to be kept elsewhere
)
"""Top first: each imports only those below it."""
