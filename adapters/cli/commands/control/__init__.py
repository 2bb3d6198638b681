"""Commands that answer for runs and end them."""

ROOMS = (
    "answers",  # `approve` and `deny`
    "budgets",  # `budgets`
    "fleet",  # `fleet`: workers on a Ray cluster
    "inbox",  # `approvals`
    "kill",  # `kill`
    "reap",  # `reap`
)
"""Top first: each imports only those below it."""
