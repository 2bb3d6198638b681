"""Who runs this, by name."""

from __future__ import annotations

import getpass
import os


def login_name() -> str:
    """The name under which somebody has logged in; `uid 10001` where the system has none for the user, as in many
    containers.
    """
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
