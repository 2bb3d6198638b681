"""What a session uses, what it costs, and the limits on it."""

ROOMS = (
    "limits",  # the eight limits
    "tokens",  # adding up token reports
    "prices",  # what tokens cost
)
"""Top first: each imports only those below it."""
