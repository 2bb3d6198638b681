"""Agents of the OpenAI Agents SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proctor.supervisor import lazily

if TYPE_CHECKING:
    from .adapter import OpenAIAgentsAdapter

__all__ = ["OpenAIAgentsAdapter"]
__getattr__, __dir__ = lazily(__name__, {"adapter": "OpenAIAgentsAdapter"})
ROOMS = (
    "adapter",
    "session",
    "hooks",
    "gated_agents",
)
"""Top first: each imports only those below it."""
