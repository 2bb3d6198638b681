"""Programs of tests as processes that need not read in what they import: a server that has read it in forks each."""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final, Self

from proctor.supervisor.testing.fakes import PATIENCE_S

SERVER: Final = """
import contextlib, gc, importlib, json, os, runpy, signal, socket, sys, traceback

def play(program, words, folder, env):
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = [program, *words]
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)
    sys.path.insert(0, os.path.dirname(program))
    try:
        runpy.run_path(program, run_name="__main__")
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(0)

for module in sys.argv[1:]:
    with contextlib.suppress(ImportError):  # an extra that is not installed
        importlib.import_module(module)
gc.freeze()
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
asked = socket.socket(fileno=os.dup(0))
while given := socket.recv_fds(asked, 1 << 20, 2):
    words, streams, _, _ = given
    if not words:
        break
    held, go = os.pipe()
    if not (child := os.fork()):
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(go)
        os.read(held, 1)
        for n, fd in enumerate(streams):
            os.dup2(fd, n)
        os.closerange(3, 64)
        play(*json.loads(words))
    pidfd = os.pidfd_open(child)
    socket.send_fds(asked, [child.to_bytes(4, "big")], [pidfd])
    for fd in (held, go, pidfd, *streams):
        os.close(fd)
"""
MODULES: Final = (
    *("anyio._backends._asyncio", "claude_agent_sdk", "proctor.adapters.agents.claude.session"),
    *("proctor.adapters.fleet", "proctor.adapters.stores.sqlite", "proctor.supervisor.api.supervisor"),
)


class Forked:
    """A program that runs, with what a Popen has of pipes and ends; it is no child of this process."""

    def __init__(
        self, program: Path, words: Sequence[str], *, cwd: str | os.PathLike[str], env: Mapping[str, str]
    ) -> None:
        (in_read, in_write), (out_read, out_write) = os.pipe(), os.pipe()
        self.stdin, self.stdout = os.fdopen(in_write, "w"), os.fdopen(out_read)
        given = json.dumps([str(program), list(words), os.fspath(cwd), dict(env)]).encode()
        socket.send_fds(_server(), [given], [in_read, out_write])
        for fd in (in_read, out_write):
            os.close(fd)
        answer, (self._pidfd,), _, _ = socket.recv_fds(_server(), 4, 1)
        self.pid = int.from_bytes(answer, "big")

    def send_signal(self, number: int) -> None:
        """Send it a signal; nothing where it has ended."""
        if not self.has_ended():
            signal.pidfd_send_signal(self._pidfd, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def has_ended(self, timeout_s: float = 0) -> bool:
        """Whether it ends in this time."""
        return self.stdout.closed or bool(select.select([self._pidfd], [], [], timeout_s)[0])

    def wait(self) -> None:
        """Return once it has ended."""
        assert self.has_ended(PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.wait()
        if not self.stdout.closed:
            os.close(self._pidfd)
        self.stdout.close()
        with suppress(BrokenPipeError):  # what it did not read
            self.stdin.close()


@cache
def _server() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server = subprocess.Popen([sys.executable, "-c", SERVER, *MODULES], stdin=theirs.fileno(), cwd="/")
    theirs.close()
    atexit.register(server.wait)
    atexit.register(ours.close)
    return ours
