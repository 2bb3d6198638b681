"""ScriptedAdapter: an agent that follows a script."""

from .adapter import ScriptedAdapter

__all__ = ["ScriptedAdapter"]

ROOMS = (
    "adapter",  # ScriptedAdapter: an agent that follows a script
    "agent",  # plays a script
    "reading",  # script text -> steps, every problem with its place
    "steps",  # what a scripted agent may do
    "tools",  # the tools of a scripted agent
)
"""Top first: each imports only those below it."""
