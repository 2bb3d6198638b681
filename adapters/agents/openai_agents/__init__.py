"""Agents of the OpenAI Agents SDK."""

ROOMS = ("adapter", "session", "gated_agents", "hooks")
"""Top first: each imports only those below it."""
