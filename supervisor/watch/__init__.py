"""Those who look on: subscriptions and publishers."""

ROOMS = (
    "publishers",  # observers, who cannot hurt a run
    "subscriptions",  # following events
    "elsewhere",  # runs that other processes own
)
"""Top first: each imports only those below it."""
