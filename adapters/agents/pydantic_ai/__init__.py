"""Agents of pydantic-ai."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proctor.supervisor import lazily

if TYPE_CHECKING:
    from .adapter import PydanticAIAdapter

__all__ = ["PydanticAIAdapter"]
__getattr__, __dir__ = lazily(__name__, {"adapter": "PydanticAIAdapter"})
ROOMS = (
    "adapter",
    "session",
)
"""Top first: each imports only those below it."""
