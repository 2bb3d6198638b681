"""The Codex client, driven through its own `codex app-server`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proctor.supervisor import lazily

if TYPE_CHECKING:
    from .adapter import CodexAdapter

__all__ = ["CodexAdapter"]
__getattr__, __dir__ = lazily(__name__, {"adapter": "CodexAdapter"})

ROOMS = (
    "adapter",
    "session",
    "approvals",
    "log",
    "sandbox",
    "connection",
    "translation",
    "items",
)
"""Top first: each imports only those below it."""
