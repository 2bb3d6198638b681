"""The commands, a file each."""

ROOMS = (
    "demo",
    "fleet",
    "policies",
    "prove",
    "records",
    "run",
    "runs",
    "serve",
    "sessions",
    "stop",
    "suggest",
    "watch",
    "agents",
    "approvals",
)
"""Top first: each imports only those below it."""
