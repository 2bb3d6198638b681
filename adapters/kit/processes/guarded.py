"""Commands started below a guardian, where there can be one: Linux."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from proctor.supervisor.errors import ProviderError

from . import guardian

GUARDS: Final = sys.platform == "linux"
"""Whether this system lets a process adopt the orphans below it."""
_MARKED: Final = 1 << 61


def guarded(
    command: Sequence[str], *, cwd: Path, env: Mapping[str, str], mark: str, status_fd: int = guardian.NO_PIPE
) -> list[str]:
    """The command as a guardian's; unchanged where there is none, or where the command cannot start.

    Args:
        command: the program and its arguments.
        cwd: the folder it is started in.
        env: its environment.
        mark: `Launch.mark` of the run.
        status_fd: where the guardian writes how the command ended, living on with what the command left until
            the other end is closed; left out, it ends what is left and then itself as the command did.
    """
    if not GUARDS or not _is_startable(command[0], cwd, env):
        return list(command)
    return [*_guardian(mark, status_fd), *command]


def guardian_killed(returncode: int | None) -> ProviderError | None:
    """The error for a guardian that ended so, if it was killed: what it guarded may have got away for a moment."""
    if not GUARDS or returncode is None or returncode >= 0:
        return None
    return ProviderError(
        f"the guardian of the agent's processes was killed (signal {-returncode}); whatever is left of them has been "
        "ended, but what they did since was not supervised",
        details={"kind": "guardian_killed", "signal": -returncode},
    )


def limit_of(mark: str) -> int:
    """The limit on locks that marks the processes of a run: of the greatest there are, and most likely its own."""
    return _MARKED | int.from_bytes(hashlib.sha256(mark.encode()).digest()[:7], "big")


def has_limit(pid: int, limit: int | None = None) -> bool:
    """Whether a process has this limit on locks; without one, whether it has any, as outside of runs none does."""
    if not GUARDS:
        return False
    import resource

    try:
        found = resource.prlimit(pid, guardian.RLIMIT_LOCKS)[1]
    except (OSError, ValueError):  # it is gone, or another user's
        return False
    return found != resource.RLIM_INFINITY if limit is None else found == limit


def _guardian(mark: str, status_fd: int) -> list[str]:
    return [sys.executable, "-I", "-S", guardian.__file__, str(status_fd), str(limit_of(mark))]


@contextmanager
def guarded_program(program: str, mark: str) -> Iterator[str]:
    """A program that is this one below a guardian, for a library that starts a client itself.

    Args:
        program: the path of the client; given back where there can be no guardian.
        mark: `Launch.mark` of the run.
    """
    if not GUARDS or not _is_startable(program, Path.cwd(), os.environ):
        yield program
        return
    with tempfile.TemporaryDirectory(prefix="proctor-client-") as folder:
        script = Path(folder) / "client"
        command = shlex.join([*_guardian(mark, guardian.NO_PIPE), program])
        script.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        script.chmod(0o700)
        yield str(script)


def _is_startable(program: str, cwd: Path, env: Mapping[str, str]) -> bool:
    if os.sep in program:
        path = cwd / program
        return path.is_file() and os.access(path, os.X_OK)
    return shutil.which(program, path=os.pathsep.join(os.get_exec_path(env))) is not None
