"""The clients whose hooks are understood: each is one table and its translation."""

from typing import Final

from ..messages import HookClient
from .claude import CLAUDE
from .codex import CODEX
from .copilot import COPILOT
from .cursor import CURSOR
from .gemini import GEMINI
from .opencode import OPENCODE

ROOMS = ("codex", "codex_trust", "claude", "copilot", "cursor", "gemini", "opencode")
"""Top first: each imports only those below it."""
CLIENTS: Final[dict[str, HookClient]] = {
    client.name: client for client in (CLAUDE, CODEX, GEMINI, OPENCODE, CURSOR, COPILOT)
}
"""By the name that `--agent` has."""
