"""Those who look on: subscriptions and publishers."""

ROOMS = (
    "publishers",  # observers, who cannot hurt a run
    "subscriptions",  # following events
)
"""Top first: each imports only those below it."""
