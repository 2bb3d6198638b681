"""A client's output garbled or cut on its way to the adapter, for the `garbling` and `truncating` of a suite.

`garbled` and `cut` return the command to start instead of the client's own; `as_program` makes it a program, for
an adapter that takes a path. This module, run as a program, becomes the client, so that the adapter's process is
the client; a child passes the output on. It imports only the standard library, since it runs in the folder and
the environment of an agent.
"""

import os
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

NOISE = (b"no message", b'{"no": "message"}', b"[1, 2]", b'{"half": ', b"\xff\xfe\x00")
"""Lines that mean nothing to anybody: no JSON, JSON of no message, half of one, no text."""


def garbled(command: Sequence[str]) -> list[str]:
    """The command of a client that also writes lines that are not messages."""
    return _command("garble", "", command)


def cut(command: Sequence[str], mark: str, *, lives: bool = False) -> list[str]:
    """The command of a client whose output ends in the middle of a message, at the first `mark` in it, a text that it
    writes at the latest when it begins to act. If it `lives`, it continues unread instead of being killed.
    """
    return _command("mute" if lives else "cut", mark, command)


def as_program(path: Path, command: Sequence[str]) -> Path:
    """Write a program that runs a command, followed by the program's own arguments; returns its path."""
    path.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    path.chmod(0o755)
    return path


def _command(how: str, mark: str, command: Sequence[str]) -> list[str]:
    return [sys.executable, "-I", "-S", str(Path(__file__).resolve()), how, mark, *command]


def become(how: str, mark: bytes, command: Sequence[str]) -> None:
    """Become the client, with a child that passes its output on."""
    passed, written = os.pipe()
    if os.fork() == 0:
        os.close(written)
        os.close(0)
        pass_on(how, mark, passed)
        os._exit(0)
    os.close(passed)
    os.dup2(written, 1)
    os.close(written)
    os.execvp(command[0], list(command))


def pass_on(how: str, mark: bytes, passed: int) -> None:
    """Pass on what the client writes, until it ends or as far as `mark`."""
    client = os.getppid()
    if how == "garble":
        _write(b"\n".join((*NOISE, b"")))
    seen = b""
    while got := os.read(passed, 65536):
        seen = seen[-len(mark) :] + got
        if how != "garble" and mark in seen:
            _write(got[: max(0, len(got) - len(seen) + seen.index(mark))])
            break
        _write(got)
    os.close(1)
    if how == "cut":
        os.kill(client, signal.SIGKILL)
    while os.read(passed, 65536):
        continue


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    become(sys.argv[1], sys.argv[2].encode(), sys.argv[3:])
