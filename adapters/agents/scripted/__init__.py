"""ScriptedAdapter: an agent that follows a script."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proctor.supervisor import lazily

if TYPE_CHECKING:
    from .adapter import ScriptedAdapter

__all__ = ["ScriptedAdapter"]
__getattr__, __dir__ = lazily(__name__, {"adapter": "ScriptedAdapter"})
ROOMS = (
    "adapter",
    "script",
)
"""Top first: each imports only those below it."""
