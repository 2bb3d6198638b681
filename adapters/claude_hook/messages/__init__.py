"""What the client tells a hook and is told, and the usage in its log."""

ROOMS = (
    "answers",  # what the client is told
    "input",  # what the client tells a hook
    "usage",  # what the client's log says was used
    "log_lines",  # what one line of the client's log says was used
)
"""Top first: each imports only those below it."""
