"""What the client sends a hook, what it gets back, and the usage in its log."""

ROOMS = (
    "answers",  # the answers to the client
    "input",  # what the client tells a hook
    "usage",  # what the client's log says was used
    "log_lines",  # what one line of the client's log says was used
)
"""Top first: each imports only those below it."""
