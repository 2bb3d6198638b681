"""The entry points: one run, many runs, and the handle of a run."""

ROOMS = (
    "sync",  # one run, from code that is not asynchronous
    "once",  # one run, awaited
    "supervisor",  # many runs
    "starting",  # how a run comes to go on
    "handle",  # a run as its caller holds it
    "active_runs",  # the runs that go on
    "admission",  # room for runs
)
