"""Operators' views and actions, once for every surface: the commands, the HTTP API, the page, `watch`."""

ROOMS = ("service", "timeline", "views", "identities")
"""Top first: each imports only those below it."""
