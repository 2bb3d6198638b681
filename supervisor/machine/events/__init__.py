"""Events as the machine checks, sizes and makes them."""

ROOMS = (
    "field_types",  # what adapters hand over, checked
    "approvals",  # the records of an approval
    "past",  # what a session's past counts for in its next run
    "enforcement",  # what follows from a judgement, and its records
    "messages",  # how many messages of a run are recorded
    "sizes",  # how large events are, and how much one carries
)
