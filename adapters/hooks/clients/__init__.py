"""The clients whose hooks are understood: each is one table and its translation."""

from __future__ import annotations

from typing import Final

from ..messages import HookClient
from .claude import CLAUDE

ROOMS = (
    "claude",
    "claude_log",
)
"""Top first: each imports only those below it."""

CLIENTS: Final[dict[str, HookClient]] = {client.name: client for client in (CLAUDE,)}
"""By the name that `--agent` has."""
