"""Agents of the OpenAI Agents SDK."""

from .adapter import OpenAIAgentsAdapter

__all__ = ["OpenAIAgentsAdapter"]

ROOMS = (
    "adapter",  # OpenAIAgentsAdapter
    "runs",  # the SDK's runner, for runs inside a supervised one
    "reporting",  # the hooks that report a run
    "session",  # one running agent
    "responses",  # a model's response as events
    "options",  # a policy as options of a run
    "history",  # a session's events as input items
    "gated_agents",  # agents whose tools ask first
)
"""Top first: each imports only those below it."""
