"""Operations."""

ROOMS = (
    "call_view",
    "service",
    "timeline",
    "amounts",
    "views",
    "identities",
)
"""Top first: each imports only those below it."""
