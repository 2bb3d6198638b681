"""The conformance suite of stores."""

ROOMS = (
    "conformance",  # all of them: the suite to run against a Store
    "admitting",  # tests of what is stored once, and of what is refused
    "answering",  # tests of approvals and instructions
    "appending",  # tests of storing events
    "budgeting",  # tests of budgets that runs share
    "claiming",  # tests of who owns a run
    "faulty",  # a store that fails on purpose
    "fidelity",  # tests of events coming back as they were
    "finding",  # tests of finding what is stored
    "lifetime",  # tests of waiting, closing, opening again
    "listing",  # tests of what lists say of runs
    "logged",  # tests of the log of all sessions
    "pruning",  # tests of removing a session's record
    "checks",  # what the tests of the Store port share
)
