"""The client's process and its lines."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Final

import anyio
import anyio.abc
import anyio.to_thread

from proctor.supervisor.errors import ProviderError, ProviderUnavailableError

from ..processes import ProcessTree, marked_environment

INSTALL: Final = "npm install -g @sourcegraph/amp"
LEAVE_S: Final = 1.0
"""Seconds the client has to leave by itself once it has said its last."""
MAX_LINE_BYTES: Final = 64 * 1024 * 1024
_STDERR_LINES: Final = 20
_LINE_BYTES: Final = 4096
_BROKEN = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)


class Client:
    """A running client; `tree` has all its processes."""

    def __init__(self, process: anyio.abc.Process, tree: ProcessTree) -> None:
        self.tree = tree
        self.process = process
        self._stderr: deque[str] = deque(maxlen=_STDERR_LINES)

    async def say(self, prompt: str) -> None:
        """Give it its prompt, and nothing more."""
        assert self.process.stdin is not None
        try:
            await self.process.stdin.send(prompt.encode())
            await self.process.stdin.aclose()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return

    async def lines(self) -> AsyncIterator[bytes]:
        """What it writes, line by line, until its end. Raises ProviderError for a line that has none."""
        assert self.process.stdout is not None
        rest = b""
        while True:
            try:
                chunk = await self.process.stdout.receive()
            except _BROKEN:
                break
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield line
            if len(rest) > MAX_LINE_BYTES:
                raise self.gone("amp wrote a line without end")
        yield rest

    async def read_stderr(self) -> None:
        """Keep its last words, so that it never waits for a reader."""
        assert self.process.stderr is not None
        rest = b""
        while True:
            try:
                chunk = await self.process.stderr.receive()
            except _BROKEN:
                return
            *lines, rest = (rest + chunk).split(b"\n")
            self._stderr.extend(line[-_LINE_BYTES:].decode("utf-8", "replace") for line in lines)
            rest = rest[-_LINE_BYTES:]

    async def end_orphans(self) -> None:
        """Once the client has ended, end what it left: an orphan with its output keeps the stream open."""
        await self.process.wait()
        await self.tree.kill()

    async def left(self) -> None:
        """Wait, not for long, until it has ended."""
        with anyio.move_on_after(LEAVE_S):
            await self.process.wait()

    def gone(self, message: str) -> ProviderError:
        """What to raise of a client that is no more, with its last words."""
        return ProviderError(
            message, details={"exit_code": self.process.returncode, "stderr": "\n".join(self._stderr)}
        )

    async def end(self) -> None:
        """End the client and all it started, in bounded time, whatever happened before."""
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self.tree.snapshot)
            await self.tree.kill()
            await self.process.aclose()


@asynccontextmanager
async def start(command: Sequence[str], *, cwd: Path, env: Mapping[str, str], run_id: str) -> AsyncIterator[Client]:
    """Start the client; leaving ends it. Raises ProviderUnavailableError when it cannot be started."""
    try:
        process = await anyio.open_process(
            list(command),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            cwd=cwd,
            env=marked_environment(run_id, env),
            start_new_session=True,
        )
    except OSError as error:
        raise ProviderUnavailableError(f"amp cannot be started: {error}; install it with `{INSTALL}`") from error
    client = Client(process, ProcessTree(process.pid, run_id=run_id))
    try:
        yield client
    finally:
        await client.end()
