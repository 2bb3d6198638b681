"""From a request to a run that has started."""

ROOMS = ("launch", "history", "plan")
"""Top first: each imports only those below it."""
