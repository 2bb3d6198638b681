"""Approvals and commands from people and other processes."""

ROOMS = (
    "kill_switch",  # runs ended wherever they are, and no starts until that is lifted
    "approvals",  # approvals by way of the store
    "commands",  # instructions from other processes
    "reaping",  # ends what lost owners have left
    "ownership",  # a supervisor as the owner of its runs
)
