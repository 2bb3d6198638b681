"""Events sent to a service of yours: signed, in order, retried, and resumed from a stored cursor."""

from .cursor import cursor_of
from .sending import send
from .target import DEFAULT_TYPES, Target, target_of

__all__ = ["DEFAULT_TYPES", "Target", "cursor_of", "send", "target_of"]

ROOMS = (
    "sending",  # from the store's events to deliveries
    "delivery",  # one event delivered, with tries
    "envelope",  # an event as a CloudEvent, and its signature
    "cursor",  # how far was sent, kept in a file
    "target",  # where to, with what secret, which events, how patiently
)
"""Top first: each imports only those below it."""
