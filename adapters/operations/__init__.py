"""Operations."""

ROOMS = (
    "call_view",
    "service",
    "timeline",
    "views",
    "identities",
)
"""Top first: each imports only those below it."""
