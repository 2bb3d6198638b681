"""A policy learnt from recorded sessions, each entry with its evidence."""

from .learning import Suggestion, learn
from .observed import ObservedSession, observe
from .written import policy_text, tests_text, without_denied

__all__ = ["ObservedSession", "Suggestion", "learn", "observe", "policy_text", "tests_text", "without_denied"]

ROOMS = (
    "written",
    "learning",
    "inputs",
    "commands",
    "orders",
    "entries",
    "observed",
)
"""Top first: each imports only those below it."""
