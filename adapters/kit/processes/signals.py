"""One process: whether it runs, what it is, and the signals it is sent."""

from __future__ import annotations

import os
import signal
from typing import Final

import psutil

from . import guardian

POSIX: Final = os.name == "posix"
"""Whether this system has signals and sessions."""
SHELLS: Final = frozenset(("ash", "bash", "dash", "fish", "sh", "zsh"))
_ADOPTING: Final = frozenset(
    ("catatonit", "docker-init", "dumb-init", "init", "launchd", "s6-svscan", "systemd", "tini")
)
"""Programs that processes whose parent has died belong to."""
_GONE = (psutil.NoSuchProcess, psutil.ZombieProcess)


def session_of(pid: int) -> int | None:
    """The session a process is in; None where it is gone, or where there are no sessions."""
    try:
        return os.getsid(pid) if POSIX else None
    except OSError:
        return None


def ourselves() -> set[int]:
    """Our own process and its ancestors: never ended, whatever marks they carry."""
    try:
        own = psutil.Process()
        return {own.pid, *(parent.pid for parent in own.parents())}
    except psutil.Error:
        return {os.getpid()}


def runs(process: psutil.Process) -> bool:
    """Whether a process runs: a zombie does not; one that may not be inspected does."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except _GONE:
        return False
    except psutil.Error:
        return True


def adopts(process: psutil.Process) -> bool:
    """Whether it takes in processes whose parent has died. Raises psutil.Error."""
    name = process.name()
    return name in _ADOPTING or (process.pid == 1 and name in SHELLS)


def is_guardian(process: psutil.Process) -> bool:
    """A guardian, and not its child that is about to become the command."""
    try:
        line = process.cmdline()
        if guardian.__file__ not in line[:4]:
            return False
        parent = process.parent()
        return parent is None or parent.cmdline() != line
    except psutil.Error:
        return False


def send(process: psutil.Process, number: int) -> bool:
    """Send a signal; False where the process is gone, or the system refuses."""
    try:
        process.send_signal(number)
    except psutil.Error:
        return False
    return True


def ask_to_end(process: psutil.Process) -> bool:
    """Ask a process to end, a stopped one too; kill it where there is no such signal. False as of `send`."""
    if not POSIX:
        return kill(process)
    sent = send(process, signal.SIGTERM)
    send(process, signal.SIGCONT)  # a stopped process would not hear it
    return sent


def kill(process: psutil.Process) -> bool:
    """Kill a process. False as of `send`."""
    try:
        process.kill()
    except psutil.Error:
        return False
    return True
