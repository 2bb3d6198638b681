"""The shell around one machine: it does the I/O of a run."""

ROOMS = (
    "actor",  # the shell around one machine
    "gate_waiters",  # those who wait at the gate
    "orphans",  # runs without a shell
    "kept_events",  # the latest events of a run, for its result
    "recorder",  # the record hurried, asked for again, and missed
    "journal",  # group commit of a run's record
    "provider_reader",  # reading a provider
    "cancel_ladder",  # ending a provider step by step
    "errands",  # what a run has done beside the reading of its agent
    "foreign",  # code of others, called so that it harms nothing but itself
    "latch",  # something that happens once
    "services",  # what many runs share
    "timers",  # deadlines of many runs
    "clock",  # the supervisor's own time
)
