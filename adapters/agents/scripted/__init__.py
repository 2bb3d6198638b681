"""ScriptedAdapter: an agent that follows a script."""

ROOMS = ("adapter", "script")
"""Top first: each imports only those below it."""
