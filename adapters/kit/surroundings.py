"""Where a client works."""

from __future__ import annotations

import os
from collections.abc import Mapping


def home_of(env: Mapping[str, str]) -> str | None:
    """The absolute home directory of a process with this environment; None where that does not say."""
    home = env.get("HOME") or env.get("USERPROFILE")
    return home if home is not None and os.path.isabs(home) else None
