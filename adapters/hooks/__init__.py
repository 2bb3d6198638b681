"""Interactive agents under policies, through the hooks of their settings.

A client starts a small program for each hook (`daemon_client`), which asks the one process that judges (`daemon`).
"""

ROOMS = (
    "permissions",
    "settings",
    "daemon",
    "over_http",
    "hook_judge",
    "daemon_client",
    "origin",
    "hook",
    "session",
    "judge",
    "clients",
    "messages",
    "record",
)
"""Top first: each imports only those below it."""
