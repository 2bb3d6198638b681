"""A compiled policy, and the monitor that evaluates its rules over one session."""

ROOMS = (
    "compiled_policy",
    "monitor",
    "snapshots",
    "handlers",
    "state",
    "violations",
    "call_table",
    "program",
    "limit_checker",
    "usage",
)
"""Top first: each imports only those below it."""
