"""What a client gets from its environment: a home directory, and the shell its commands run in."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping


def bash_for_commands(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that make a client run commands with bash, as `runs` reads them; empty where there is no bash."""
    bash = shutil.which("bash", path=env.get("PATH"))
    return {} if bash is None else {"SHELL": bash}


def shell_of(env: Mapping[str, str]) -> str | None:
    """The shell that a client runs commands with, where it is started with those variables."""
    return "bash" if bash_for_commands(env) else None


def home_of(env: Mapping[str, str]) -> str | None:
    """The absolute home directory of a process with this environment; None where that does not say."""
    home = env.get("HOME") or env.get("USERPROFILE")
    return home if home is not None and os.path.isabs(home) else None
