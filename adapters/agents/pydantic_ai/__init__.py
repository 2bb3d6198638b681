"""Agents of pydantic-ai."""

ROOMS = ("adapter", "session")
"""Top first: each imports only those below it."""
