"""Agents of the OpenAI Agents SDK."""

ROOMS = ("adapter", "session", "hooks", "gated_agents")
"""Top first: each imports only those below it."""
