"""How records are kept: the codec, paging, the store in memory."""

ROOMS = (
    "take_over",  # the run that goes on where a lost one stopped
    "retention",  # how long the record is kept
    "transfer",  # the record as lines of JSON, and back
    "memory",  # a store in memory
    "refusals",  # what every store says when it refuses
    "approvals",  # what events say of approvals
    "admission",  # what a store admits to the record of a run
    "selection",  # which runs a list is asked for
    "tally",  # what lists show of a run
    "codec",  # events as stores keep them
    "chain",  # what ties the records of a session together
    "paging",  # all stored runs, page by page
)
