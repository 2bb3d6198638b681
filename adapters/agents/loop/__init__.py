"""Anybody's own agent loop, supervised."""

ROOMS = ("adapter", "gate")
"""Top first: each imports only those below it."""
