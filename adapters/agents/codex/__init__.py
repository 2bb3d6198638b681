"""The Codex client, driven through its own `codex app-server`."""

from .adapter import CodexAdapter

__all__ = ["CodexAdapter"]

ROOMS = (
    "adapter",
    "session",
    "approvals",
    "log",
    "rollout",
    "sandbox",
    "connection",
    "translation",
    "items",
)
"""Top first: each imports only those below it."""
