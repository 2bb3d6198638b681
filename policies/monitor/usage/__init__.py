"""What a session uses, what it costs, and the limits and budgets on it."""

ROOMS = (
    "budgets",  # the budgets that runs share
    "limits",  # the eight limits
    "tokens",  # adding up token reports
    "prices",  # what tokens cost
)
