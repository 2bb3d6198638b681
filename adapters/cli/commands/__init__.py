"""The commands, a file each."""

ROOMS = (
    "demo",
    "fleet",
    "init",
    "policies",
    "records",
    "run",
    "runs",
    "serve",
    "sessions",
    "stop",
    "prove",
    "agents",
    "hook",
    "approvals",
)
"""Top first: each imports only those below it."""
