"""Agents of pydantic-ai."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proctor.supervisor.lazy_imports import lazily

from ...kit.agent_spec import AgentSpec

if TYPE_CHECKING:
    from .adapter import PydanticAIAdapter

__all__ = ["SPEC", "PydanticAIAdapter"]

SPEC = AgentSpec(
    name="pydantic-ai",
    about="agents of pydantic-ai",
    adapter="proctor.adapters.agents.pydantic_ai:PydanticAIAdapter",
    extra="pydantic-ai",
    install="pip install '.[pydantic-ai]'",
    modules=("pydantic_ai",),
)

__getattr__, __dir__ = lazily(__name__, {"adapter": "PydanticAIAdapter"})

ROOMS = (
    "adapter",
    "session",
    "hooks",
)
"""Top first: each imports only those below it."""
