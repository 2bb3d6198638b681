"""Several adapters as one: if a client fails before anything ran, the next one takes over."""

from .adapter import FallbackAdapter
from .breaker import Health

__all__ = ["FallbackAdapter", "Health"]

ROOMS = (
    "adapter",  # the Adapter
    "session",  # one run: who is tried, and what is handed on
    "counting",  # what several clients report in one run, counted on
    "capabilities",  # what all of them can do
    "breaker",  # whether a client is tried
)
"""Top first: each imports only those below it."""
