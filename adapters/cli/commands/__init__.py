"""The commands, a file each."""

ROOMS = (
    "demo",
    "fleet",
    "policies",
    "records",
    "run",
    "runs",
    "serve",
    "sessions",
    "stop",
    "watch",
    "agents",
    "approvals",
)
"""Top first: each imports only those below it."""
