"""The record as an auditor sees it: whether it is what was written, and whether all of it is there."""

ROOMS = (
    "auditing",  # a store, read in one moment, and what was found of it
    "database",  # a store in a database, as an audit reads it
    "file",  # a store's file, as an audit reads it
    "sources",  # what an audit reads of a store, whatever keeps it
    "orders",  # what people ordered: all of it, and the blocks of starts that follow from it
    "listing",  # lists held to the record they follow from
    "verifying",  # records checked one after another
    "signing",  # heads signed, and the signature checked
    "heads",  # where each session's record ends, to be kept elsewhere
)
"""Top first: each imports only those below it."""
