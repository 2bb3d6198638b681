"""Commands that show stored runs and live ones."""

ROOMS = (
    "watch",  # `watch`
    "explain",  # `explain`
    "listing",  # `runs`
    "serve",  # `serve`
    "show",  # `show`
    "tail",  # `tail`
)
"""Top first: each imports only those below it."""
