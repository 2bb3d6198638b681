"""What people and other processes ask of runs: approvals and commands."""

ROOMS = (
    "approvals",  # approvals by way of the store
    "commands",  # instructions from other processes
    "reaping",  # what owners who are gone have left, ended
    "ownership",  # a supervisor as the owner of its runs
)
"""Top first: each imports only those below it."""
