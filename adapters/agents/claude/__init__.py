"""Claude Code, through claude-agent-sdk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proctor.supervisor import lazily

if TYPE_CHECKING:
    from .adapter import ClaudeAdapter

__all__ = ["ClaudeAdapter"]
__getattr__, __dir__ = lazily(__name__, {"adapter": "ClaudeAdapter"})
ROOMS = (
    "adapter",
    "log",
    "usage_log",
    "session",
    "launch",
    "translation",
    "hooks",
)
"""Top first: each imports only those below it."""
