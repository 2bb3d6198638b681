"""What people and other processes ask of runs: approvals and commands."""

ROOMS = (
    "approvals",  # approvals by way of the store
    "commands",  # messages from other processes
)
"""Top first: each imports only those below it."""
