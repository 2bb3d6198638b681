"""What the client sends a hook, what it gets back, and the usage in its log."""

ROOMS = (
    "answers",
    "input",
    "usage",
    "log_lines",
)
"""Top first: each imports only those below it."""
