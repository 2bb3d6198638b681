"""A provider's client: a process on three pipes, ended with everything it started."""

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

from ..wire.byte_lines import BROKEN
from ..wire.output_pipe import OutputPipe
from .environment import bash_for_commands
from .guarded import GUARDS, guarded, guardian_killed
from .guardian import SIGNALLED
from .process_tree import ProcessTree, marked_environment

LEAVE_S: Final = 1.0
"""Seconds a client has to leave by itself, once it has said its last or its input is closed."""
_STDERR_LINES: Final = 20
_STDERR_LINE_BYTES: Final = 4096


class ClientProcess:
    """A running client; `tree` has all its processes, for the cancel ladder.

    Args:
        process: the client, with two pipes.
        output: the third, its standard output.
        name: how messages call it.
        tree: its processes.
        leaves: whether it ends by itself once its input is closed.
    """

    def __init__(
        self, process: anyio.abc.Process, output: OutputPipe, *, name: str, tree: ProcessTree, leaves: bool
    ) -> None:
        assert process.stdin is not None
        assert process.stderr is not None
        self.name = name
        self.tree = tree
        self.stdin = process.stdin
        self.stdout = output
        self._errors = process.stderr
        self._process = process
        self._leaves = leaves
        self._last_words: deque[str] = deque(maxlen=_STDERR_LINES)
        self._words_over = anyio.Event()

    @property
    def exit_code(self) -> int | None:
        """What it ended with, negative for a signal; None while it runs."""
        code = self._process.returncode
        return SIGNALLED - code if GUARDS and code is not None and code > SIGNALLED else code

    async def say(self, text: str) -> None:
        """Give it all its input at once, and nothing more."""
        try:
            await self.stdin.send(text.encode())
            await self.hang_up()
        except BROKEN:
            return

    async def read_stderr(self) -> None:
        """Keep its last words, so that it never waits for a reader."""
        rest = b""
        while True:
            try:
                chunk = await self._errors.receive()
            except BROKEN:
                self._words_over.set()
                return
            *lines, rest = (rest + chunk).split(b"\n")
            self._last_words.extend(line[-_STDERR_LINE_BYTES:].decode("utf-8", "replace") for line in lines)
            rest = rest[-_STDERR_LINE_BYTES:]

    async def left(self) -> None:
        """Wait, not for long, until it has ended."""
        with anyio.move_on_after(LEAVE_S):
            await self._process.wait()

    async def last_words(self) -> str:
        """What it wrote last as errors, to be asked of one that has ended: waits, not for long, until all is read."""
        with anyio.move_on_after(LEAVE_S):
            await self._words_over.wait()
        return "\n".join(self._last_words)

    async def end_orphans(self) -> None:
        """Once it has ended, end what it left: an orphan that holds its output keeps the stream open."""
        await self._process.wait()
        await self.tree.kill()

    def gone(self, message: str) -> ProviderError:
        """The error for a client that has ended, with its last words."""
        words = "\n".join(self._last_words)
        return self.guardian_killed() or ProviderError(
            message, details={"exit_code": self.exit_code, "stderr": words}
        )

    async def hang_up(self) -> None:
        """Close its input, at which a well-behaved client ends by itself."""
        await self.stdin.aclose()

    def guardian_killed(self) -> ProviderError | None:
        """The error for a client whose guardian was killed by somebody else."""
        return guardian_killed(self._process.returncode)

    async def end(self) -> None:
        """End it and all it started, in bounded time, whatever happened before."""
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self.tree.snapshot)
            if self._leaves and self.exit_code is None:
                with anyio.move_on_after(LEAVE_S):
                    await self.hang_up()
                    await self._process.wait()
            await self.tree.kill()
            await self.stdout.aclose()
            await self._process.aclose()


@asynccontextmanager
async def start_client(
    name: str,
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    mark: str,
    leaves: bool = True,
    advice: str = "",
) -> AsyncIterator[ClientProcess]:
    """Start a client, marked with its run; leaving ends it, see `ClientProcess`.

    Args:
        name: how messages call it.
        command: the program and its arguments.
        cwd: the folder it works in.
        env: its whole environment, but for the mark.
        mark: `Launch.mark` of the run it belongs to.
        leaves: whether it ends by itself once its input is closed.
        advice: what to do when it cannot be started.

    Raises:
        ProviderUnavailableError: it cannot be started.
        ProviderError: what it started has killed its guardian.
    """
    output = OutputPipe()
    try:
        process = await anyio.open_process(
            guarded(command, cwd=cwd, env=env, mark=mark),
            stdin=PIPE,
            stdout=output.write_end,
            stderr=PIPE,
            cwd=cwd,
            env={**marked_environment(mark, env), **bash_for_commands(env)},
            start_new_session=True,
        )
    except BaseException as error:
        await output.aclose()
        if not isinstance(error, OSError):
            raise
        more = f"; {advice}" if advice else ""
        raise ProviderUnavailableError(f"{name} cannot be started: {error}{more}") from error
    finally:
        output.let_go()
    tree = ProcessTree(process.pid, mark=mark)
    client = ClientProcess(process, output, name=name, tree=tree, leaves=leaves)
    try:
        yield client
    finally:
        await client.end()
    if (killed := client.guardian_killed()) is not None:
        raise killed
