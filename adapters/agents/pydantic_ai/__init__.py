"""Agents of pydantic-ai."""

from .adapter import PydanticAIAdapter

__all__ = ["PydanticAIAdapter"]

ROOMS = (
    "adapter",
    "session",
    "hooks",
)
"""Top first: each imports only those below it."""
