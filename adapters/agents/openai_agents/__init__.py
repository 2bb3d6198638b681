"""Agents of the OpenAI Agents SDK."""

from .adapter import OpenAIAgentsAdapter

__all__ = ["OpenAIAgentsAdapter"]

ROOMS = (
    "adapter",  # OpenAIAgentsAdapter
    "session",  # one running agent
    "runs",  # the SDK's runner, for runs inside a supervised one
    "narrowing",  # models that are shown only what could be called
    "reporting",  # the hooks that report a run
    "guard",  # what asks the gate before a tool runs
    "gated_agents",  # agents whose tools ask first
    "executors",  # the caller's own code that the SDK runs for the model
    "arguments",  # a call's arguments as its tool will get them
    "responses",  # a model's response as events
    "history",  # a session's events as input items
)
"""Top first: each imports only those below it."""
