"""Agents of the OpenAI Agents SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proctor.supervisor.lazy_imports import lazily

from ...kit.agent_spec import AgentSpec

if TYPE_CHECKING:
    from .adapter import OpenAIAgentsAdapter

__all__ = ["SPEC", "OpenAIAgentsAdapter"]

SPEC = AgentSpec(
    name="openai-agents",
    about="agents of the OpenAI Agents SDK",
    adapter="proctor.adapters.agents.openai_agents:OpenAIAgentsAdapter",
    extra="openai-agents",
    install="pip install '.[openai-agents]'",
    modules=("agents",),
    model_provider="openai",
)

__getattr__, __dir__ = lazily(__name__, {"adapter": "OpenAIAgentsAdapter"})

ROOMS = (
    "adapter",
    "session",
    "hooks",
    "gated_agents",
)
"""Top first: each imports only those below it."""
