"""Whether the client could sign in. Only whether something is there is looked at, never what it says."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_VARIABLES: Final = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_USE_VERTEX",
)


def can_sign_in(env: Mapping[str, str]) -> bool:
    """Whether an environment holds, or leads to, something to sign in with.

    Settings may name a helper that fetches a key, and macOS keeps logins in its keychain: where one of
    these may be, the client is left to find out.
    """
    if any(env.get(name) for name in _VARIABLES) or sys.platform == "darwin":
        return True
    home = env.get("CLAUDE_CONFIG_DIR") or str(Path(env.get("HOME") or Path.home()) / ".claude")
    return any((Path(home) / name).exists() for name in (".credentials.json", "settings.json"))
