"""ScriptedAdapter: an agent that follows a script."""

from .adapter import ScriptedAdapter

__all__ = ["ScriptedAdapter"]

ROOMS = (
    "adapter",
    "script",
    "tools",
)
"""Top first: each imports only those below it."""
