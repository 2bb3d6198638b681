"""A person's own Claude Code under policies, through the hooks of its settings.

Each hook is a process of its own, so importing this package imports nothing else.
"""

ROOMS = (
    "__main__",  # one hook, as the client starts it
    "hook",  # one hook, from input to answer
    "deciding",  # what one hook means for its session
    "answers",  # what the client is told
    "keeping",  # what a hook adds to the record; runs begin and end
    "record",  # the session's record, one hook at a time
    "session",  # a session folded from its record
    "settings",  # the client's settings file
    "asked",  # what the client tells a hook
    "usage",  # what the client's log says was used
    "log_lines",  # what one line of the client's log says was used
)
"""Top first: each imports only those below it."""
