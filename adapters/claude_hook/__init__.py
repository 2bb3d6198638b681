"""A person's own Claude Code under policies, through the hooks of its settings.

The client starts a small program for each hook (`knock`), which asks the one process that judges (`resident`).
"""

ROOMS = (
    "__main__",
    "settings",
    "resident",
    "hook_judge",
    "knock",
    "client",
    "hook",
    "opening",
    "messages",
    "session",
    "judge",
    "rules",
    "session_record",
)
"""Top first: each imports only those below it."""
