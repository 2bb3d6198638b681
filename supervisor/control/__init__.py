"""Approvals and commands from people and other processes."""

ROOMS = ("approval_inbox", "kill_switch", "ownership")
"""Top first: each imports only those below it."""
