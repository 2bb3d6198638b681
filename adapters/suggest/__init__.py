"""A policy learnt from recorded sessions, each entry with its evidence."""

from .inputs import Like, like_of
from .learning import Suggestion, learn
from .observed import ObservedSession, observe
from .written import policy_text, tests_text, without_denied

__all__ = ["Like", "ObservedSession", "Suggestion", "learn", "like_of", "observe", "policy_text", "tests_text"]
__all__ += ["without_denied"]

ROOMS = ("written", "learning", "inputs", "entries", "observed")
"""Top first: each imports only those below it."""
