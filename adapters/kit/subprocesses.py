"""Runs commands: captures bounded output, and ends each with everything that it started."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import anyio
import anyio.abc
import msgspec

from proctor.supervisor.errors import ProviderError

from .process_tree import ProcessTree, guarded, guardian_killed, marked_environment

OUTPUT_LIMIT = 64 * 1024
GRACE_S = 1.0
_READ_SIZE = 65536
_PIPE_READS = 16  # a pipe holds at most 1 MiB


class CommandResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a command ended.

    Attributes:
        exit_code: The exit code; negative for a signal.
        stdout: Its standard output, as far as it was kept.
        stderr: Its standard error, as far as it was kept.
        timed_out: Whether it was ended because its time was up.
        truncated: Whether output was left out.
    """

    exit_code: int
    stdout: str = ""
    stderr: str = ""
    timed_out: bool = False
    truncated: bool = False


class Subprocesses:
    """The commands of one run.

    Args:
        mark: `Launch.mark` of the run; it marks every process, so that those that outlive their command are found.
        output_limit: bytes kept of each of standard output and standard error; the rest is read and dropped.
    """

    def __init__(self, mark: str, *, output_limit: int = OUTPUT_LIMIT) -> None:
        self.tree = ProcessTree(mark=mark)
        self.started = 0
        self.tampered: ProviderError | None = None
        """The error if something has killed a guardian."""
        self._ended = 0
        self._guarded: list[_Started] = []
        self._closing = anyio.Lock()
        self._mark = mark
        self._limit = output_limit

    async def run(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None, timeout_s: float | None = None
    ) -> CommandResult:
        """Run one command to its end; cancelled or timed out, it ends with all its processes.

        Processes that it leaves in the background live until `end`.

        Raises:
            OSError: it cannot start.
            ProviderError: a process of an earlier command has killed its guardian.
        """
        self.started += 1
        await self._close_pipes(ended_only=True)
        if self.tampered is not None:
            raise self.tampered
        marked = marked_environment(self._mark, env, call_id=str(self.started))
        with _Capture(self._limit) as out, _Capture(self._limit) as err, _Pipe() as status:
            process = await anyio.open_process(
                guarded(argv, cwd=cwd, env=marked, mark=self._mark, status_fd=status.writer),
                stdin=subprocess.DEVNULL,
                stdout=out.writer,
                stderr=err.writer,
                cwd=cwd,
                env=marked,
                start_new_session=True,
                pass_fds=[status.writer],
            )
            status.close_writer()
            self.tree.add(process.pid)
            own = ProcessTree(process.pid, mark=self._mark, call_id=str(self.started))
            started = _Started(process, status.keep())
            self._guarded.append(started)
            try:
                timed_out = await _wait(started, own, (out, err), timeout_s)
            finally:
                with anyio.CancelScope(shield=True):
                    await _end(started, own)
            if started.tampered is not None:
                self.tampered = started.tampered
                await self.tree.kill()
            return CommandResult(
                exit_code=await started.wait(),
                stdout=out.text(),
                stderr=err.text(),
                timed_out=timed_out,
                truncated=out.truncated or err.truncated,
            )

    async def end(self) -> None:
        """Kill the processes that the commands of this run left. Bounded, and shielded from cancellation."""
        if self.started > self._ended:
            with anyio.CancelScope(shield=True):
                await self.tree.kill()
                await self._close_pipes(ended_only=False)
                self._ended = self.started

    async def _close_pipes(self, *, ended_only: bool) -> None:
        """Close the pipes of commands; with `ended_only`, only of those whose guardian has ended. A second caller
        waits for the first, and so hears of a guardian that was killed.
        """
        async with self._closing:
            for started in [s for s in self._guarded if not ended_only or s.process.returncode is not None]:
                self._guarded.remove(started)
                await started.close()
                self.tampered = self.tampered or guardian_killed(started.process.returncode)


class _Pipe:
    def __enter__(self) -> Self:
        self.reader, self.writer = os.pipe()
        self._writing = self._reading = True
        return self

    def __exit__(self, *exc: object) -> None:
        self.close_writer()
        if self._reading:
            os.close(self.reader)

    def close_writer(self) -> None:
        if self._writing:
            self._writing = False
            os.close(self.writer)

    def keep(self) -> int:
        """Give up the reading end, which stays open for its new owner."""
        self._reading = False
        return self.reader


class _Started:
    def __init__(self, process: anyio.abc.Process, status: int) -> None:
        self.process = process
        self.exit_code: int | None = None
        self.tampered: ProviderError | None = None
        self._status = status

    async def wait(self) -> int:
        """Wait until the command has ended, but not the processes it left."""
        if self.exit_code is None:
            await anyio.wait_readable(self._status)
            status = os.read(self._status, 64)
            self.exit_code = int(status) if status else await self.process.wait()
            self.tampered = None if status else guardian_killed(self.exit_code)
        return self.exit_code

    async def close(self) -> None:
        """Release its guardian, which ends the remaining processes."""
        os.close(self._status)
        await self.process.wait()
        await self.process.aclose()


class _Capture(_Pipe):
    """A pipe read up to a limit, without waiting for its end, as a background process may hold it open."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept = bytearray()
        self.truncated = False

    def __enter__(self) -> Self:
        super().__enter__()
        os.set_blocking(self.reader, False)
        return self

    async def read(self) -> None:
        while self._read_once() != b"":
            await anyio.wait_readable(self.reader)

    def text(self) -> str:
        """The text written until now, bounded, as a background process may write without end."""
        for _ in range(_PIPE_READS):
            if not self._read_once():
                break
        return self._kept.decode("utf-8", "replace")

    def _read_once(self) -> bytes | None:
        """Some bytes; none at the end, None when there is nothing yet."""
        try:
            data = os.read(self.reader, _READ_SIZE)
        except BlockingIOError:
            return None
        left = self._limit - len(self._kept)
        self._kept += data[:left]
        self.truncated = self.truncated or len(data) > left
        return data


async def _wait(started: _Started, own: ProcessTree, captures: Sequence[_Capture], timeout_s: float | None) -> bool:
    """Read and wait until the command's own process has ended; returns whether it ran out of time."""
    async with anyio.create_task_group() as readers:
        for capture in captures:
            capture.close_writer()
            readers.start_soon(capture.read)
        with anyio.move_on_after(timeout_s) as scope:
            await started.wait()
        if scope.cancelled_caught:
            await own.kill()
            await started.wait()
        readers.cancel_scope.cancel()
    return scope.cancelled_caught


async def _end(started: _Started, own: ProcessTree) -> None:
    if started.exit_code is None:
        await own.terminate(GRACE_S)
        await own.kill()
        await started.wait()
