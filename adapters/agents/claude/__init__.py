"""Claude Code, through claude-agent-sdk."""

from .adapter import ClaudeAdapter

__all__ = ["ClaudeAdapter"]

ROOMS = (
    "adapter",
    "log",
    "session",
    "launch",
    "hooks",
    "translation",
    "calls",
)
"""Top first: each imports only those below it."""
