"""Clients that share a home start one after another.

The first client of a home makes its databases there before it answers anything, and another one that meets
them half made ends with an error. So each start holds a lock on the folder until the client has answered;
it holds between the threads and the processes of one machine, and ends with the process that took it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import anyio

from .settings import home

_PAUSE_S: Final = 0.01


class StartTurn:
    """Leave to start a client, until the client has answered."""

    def __init__(self, folder: int | None) -> None:
        self._folder = folder

    def over(self) -> None:
        """Let the next one start; only the first call counts."""
        if self._folder is not None:
            os.close(self._folder)
            self._folder = None


async def turn_to_start(env: Mapping[str, str]) -> StartTurn:
    """Wait until no other client of ours is starting in the home that an environment names."""
    folder = _open(_databases(env), make=not env.get("CODEX_HOME"))
    turn = StartTurn(folder)
    try:
        while folder is not None and not _lock(folder):  # noqa: ASYNC110 - other processes set no event of ours
            await anyio.sleep(_PAUSE_S)
    except BaseException:
        turn.over()
        raise
    return turn


def _databases(env: Mapping[str, str]) -> Path:
    return Path(env["CODEX_SQLITE_HOME"]) if env.get("CODEX_SQLITE_HOME") else home(env)


if sys.platform == "win32":

    def _open(folder: Path, *, make: bool) -> int | None:
        return None  # folders cannot be locked there

    def _lock(folder: int) -> bool:
        return True

else:
    import fcntl

    def _open(folder: Path, *, make: bool) -> int | None:
        try:
            if make:  # as the client itself would
                folder.mkdir(parents=True, exist_ok=True)
            return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:  # which the client says itself
            return None

    def _lock(folder: int) -> bool:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks, where a client that meets another says so itself
            return True
        return True
