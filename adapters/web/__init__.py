"""The operators' web page and HTTP API on a store whose runs are in other processes. Needs the extra `web`."""

ROOMS = ("server", "notify", "webhook", "api_control", "api_runs", "endpoints", "auth")
"""Top first: each imports only those below it."""
