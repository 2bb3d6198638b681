"""The state of all rules over one session: index, program, state, snapshots, monitor."""

ROOMS = (
    "compiled",  # the stack as machines, indexed by tool
    "monitor",  # the monitor
    "snapshots",  # A monitor's state written down, and read back
    "report",  # how each rule ended
    "clocks",  # the limits of one session
    "handlers",  # what each type of event does to the state of a session
    "state",  # the state of all rules over one session, and how a call moves it
    "decisions",  # from what the rules found about a call to one decision, and the steps that explain it
    "violations",  # violations
    "session",  # the state of one session
    "index",  # compiled rules, and what calls of a tool mean to them
    "limits",  # the eight limits
    "memory",  # what a session remembers for its rules
    "usage",  # adding up token reports
    "prices",  # what tokens cost
)
"""Top first: each imports only those below it."""
