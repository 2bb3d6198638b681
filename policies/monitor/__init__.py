"""One session judged: program < state < snapshots < monitor < the compiled policy."""

ROOMS = (
    "compiled",  # a policy ready to judge any number of sessions
    "monitor",  # one session judged call by call and event by event
    "snapshots",  # the state written down, and read back
    "answers",  # what a monitor answers: decisions, visible tools, the report
    "clocks",  # what events and the passing of time do to limits
    "handlers",  # what each type of event does to the state
    "live_nets",  # nets that are added to a session while it lives
    "state",  # the state of all rules over one session, and how a call moves it
    "violations",  # of a rule, of a limit, and of what the monitor itself objects to
    "identity",  # whose id a call has
    "session",  # what is remembered of one session
    "program",  # a stack as machines, indexed by the tools they name
    "memory",  # what a session remembers for its rules
    "usage",  # what a session uses, what it costs, and the limits on it
)
