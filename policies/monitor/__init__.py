"""One session judged: program < state < snapshots < monitor < the compiled policy."""

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
