"""Commands that answer for runs and end them."""

ROOMS = (
    "answers",  # `approve` and `deny`
    "inbox",  # `approvals`
    "kill",  # `kill`
    "reap",  # `reap`
)
"""Top first: each imports only those below it."""
