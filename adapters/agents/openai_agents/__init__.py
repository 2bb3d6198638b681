"""Agents of the OpenAI Agents SDK."""

from .adapter import OpenAIAgentsAdapter

__all__ = ["OpenAIAgentsAdapter"]

ROOMS = (
    "adapter",
    "session",
    "hooks",
    "narrowing",
    "gated_agents",
)
"""Top first: each imports only those below it."""
