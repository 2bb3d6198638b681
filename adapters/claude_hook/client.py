"""The client as the owner of its runs: the process that started a hook, found from the hook's own process.

The client starts a hook through a shell, which stays above it or has made room for it.
"""

from __future__ import annotations

import os

import psutil

from proctor.supervisor.ports.facts import CLIENT, Owner
from proctor.supervisor.ports.processes import as_owner

_LINE = "/claude_hook/knock.py "
_SHELLS = frozenset(("ash", "bash", "dash", "fish", "sh", "zsh"))
_ADOPTING = frozenset(("catatonit", "docker-init", "dumb-init", "init", "launchd", "s6-svscan", "systemd", "tini"))
"""Programs that processes whose parent has died belong to."""


def client_of(hook: int) -> Owner | None:
    """The client whose hook this process is, as an owner without an epoch yet; None where it is not known."""
    if not hook:
        return None
    try:
        process = psutil.Process(hook).parent()
        while process is not None and _is_shell_of_hook(process):
            process = process.parent()
        if process is None or _adopts(process):
            return None
        client = as_owner(process.pid, CLIENT)
    except (psutil.Error, OSError):
        return None
    return client if client.started else None


def _is_shell_of_hook(process: psutil.Process) -> bool:
    """Whether it is a shell that runs the hook's line, and nothing else."""
    words = process.cmdline()
    name = os.path.basename(words[0]) if words else ""
    return name in _SHELLS and any(_LINE in word for word in words)


def _adopts(process: psutil.Process) -> bool:
    """Whether it took in a hook whose client has died meanwhile."""
    name = process.name()
    return name in _ADOPTING or (process.pid == 1 and name in _SHELLS)
