"""Agents of pydantic-ai."""

from .adapter import PydanticAIAdapter

__all__ = ["PydanticAIAdapter"]

ROOMS = (
    "adapter",  # PydanticAIAdapter
    "session",  # one running agent
    "sub_agents",  # the calls of agents that a tool runs
    "hooks",  # the capability that gates calls and reports a run
    "responses",  # a model's response as events
    "options",  # a policy as UsageLimits
    "meter",  # what the framework counted, as usage events
    "history",  # a session's events as message history
)
"""Top first: each imports only those below it."""
