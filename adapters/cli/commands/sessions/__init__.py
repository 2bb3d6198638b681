"""Commands that judge recorded sessions."""

ROOMS = (
    "diff",  # `diff`
    "eval",  # `eval`
    "narrow",  # `narrow`
)
"""Top first: each imports only those below it."""
