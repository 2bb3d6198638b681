"""Observers of runs: subscriptions, publishers, and the watchdog of the event loop."""

ROOMS = ("subscriptions", "watchdog", "log_follower")
"""Top first: each imports only those below it."""
