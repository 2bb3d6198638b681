"""A person's own Claude Code under policies, through the hooks of its settings.

The client starts a small program for each hook (`knock`), which asks the one process that judges (`resident`).
"""

ROOMS = (
    "__main__",  # the process that judges, as it is started
    "resident",  # answers hooks on a private socket
    "hook_judge",  # hooks one after another, their sessions kept in between
    "client",  # where a hook comes from: the process that started it, the owner of its run
    "hook",  # what one hook reports to its run's machine, and its answer to the client
    "session",  # the machine of a session's latest run, and what carries out its commands
    "judge",  # a monitor for a client that asks its person itself
    "rules",  # policy files, read again when they change
    "session_record",  # the store, one session's record at a time
    "settings",  # the client's settings file
    "messages",  # what the client tells and is told, and the usage in its log
    "knock",  # one hook as the client starts it; imports nothing of this package
)
"""Top first: each imports only those below it."""
