"""Interactive agents under policies, through the hooks of their settings.

A client starts a small program for each hook (`daemon_client`), which asks the hook daemon (`daemon`).
"""

ROOMS = (
    "settings",
    "daemon",
    "over_http",
    "decider",
    "origin",
    "daemon_client",
    "hook",
    "session",
    "decisions",
    "clients",
    "messages",
    "permission_import",
    "record",
)
"""Top first: each imports only those below it."""
