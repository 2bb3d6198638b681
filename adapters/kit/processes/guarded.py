"""Commands started below a guardian, where there can be one: Linux."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from . import guardian

GUARDS: Final = sys.platform == "linux"
"""Whether this system lets a process adopt the orphans below it."""


def guarded(
    command: Sequence[str], *, cwd: Path, env: Mapping[str, str], status_fd: int = guardian.NO_PIPE
) -> list[str]:
    """The command as a guardian's; unchanged where there is none, or where the command cannot start.

    Args:
        command: the program and its arguments.
        cwd: the folder it is started in.
        env: its environment.
        status_fd: where the guardian writes how the command ended, living on with what the command left until
            the other end is closed; left out, it ends what is left and then itself as the command did.
    """
    if not GUARDS or not _is_startable(command[0], cwd, env):
        return list(command)
    return [sys.executable, "-I", "-S", guardian.__file__, str(status_fd), *command]


@contextmanager
def guarded_program(program: str) -> Iterator[str]:
    """A program that is this one below a guardian, for a library that starts a client itself.

    Args:
        program: the path of the client; given back where there can be no guardian.
    """
    if not GUARDS or not _is_startable(program, Path.cwd(), os.environ):
        yield program
        return
    with tempfile.TemporaryDirectory(prefix="proctor-client-") as folder:
        script = Path(folder) / "client"
        command = shlex.join([sys.executable, "-I", "-S", guardian.__file__, str(guardian.NO_PIPE), program])
        script.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        script.chmod(0o700)
        yield str(script)


def _is_startable(program: str, cwd: Path, env: Mapping[str, str]) -> bool:
    if os.sep in program:
        path = cwd / program
        return path.is_file() and os.access(path, os.X_OK)
    return shutil.which(program, path=os.pathsep.join(os.get_exec_path(env))) is not None
