"""The Amp client, driven through its stream of JSON, its calls held by its own permission rules."""

from .adapter import AmpAdapter

__all__ = ["AmpAdapter"]

ROOMS = (
    "adapter",  # AmpAdapter: what it can do, how it starts
    "gate_socket",  # where the delegate asks the gate
    "delegate",  # the program the client asks before a call; a process of its own
    "options",  # policy -> permission rules
    "session",  # one prompt: gate answers, events, the cancel ladder
    "translation",  # what the client reports -> events
    "names",  # the client's names of tools -> ours
)
"""Top first: each imports only those below it."""
