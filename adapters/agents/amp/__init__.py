"""The Amp client, driven through its stream of JSON, its calls held by its own permission rules."""

from .adapter import AmpAdapter

__all__ = ["AmpAdapter"]

ROOMS = (
    "adapter",
    "gate_socket",
    "session",
    "delegate",
    "translation",
)
"""Top first: each imports only those below it."""
