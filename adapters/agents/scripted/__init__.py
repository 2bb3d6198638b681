"""ScriptedAdapter: an agent that follows a script."""

from .adapter import ScriptedAdapter

__all__ = ["ScriptedAdapter"]
