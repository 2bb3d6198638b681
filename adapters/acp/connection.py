"""The agent's process and the conversation with it."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any, Final

import anyio
import anyio.abc
import anyio.to_thread

from proctor.supervisor.errors import ProviderError, ProviderUnavailableError

from ..jsonrpc import OnGarbage, OnNotification, OnRequest, Peer, RpcClosedError, RpcError
from ..processes import ProcessTree, marked_environment

AUTH_REQUIRED: Final = -32000
LEAVE_S: Final = 1.0
"""Seconds an agent has to leave by itself once its input is closed."""
_STDERR_LINES: Final = 20
_LINE_BYTES: Final = 4096


class Connection:
    """A running agent. `peer` speaks with it, `tree` has all its processes."""

    def __init__(
        self,
        name: str,
        process: anyio.abc.Process,
        tree: ProcessTree,
        *,
        on_request: OnRequest,
        on_notification: OnNotification,
        on_garbage: OnGarbage,
    ) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.name = name
        self.tree = tree
        self.process = process
        self.peer = Peer(
            process.stdout,
            process.stdin,
            on_request=on_request,
            on_notification=on_notification,
            on_garbage=on_garbage,
        )
        self._stderr: deque[str] = deque(maxlen=_STDERR_LINES)

    async def ask(self, method: str, params: dict[str, Any], *, timeout_s: float | None = None) -> dict[str, Any]:
        """Ask the agent for something. Raises ProviderError if it refuses, is gone, or does not answer."""
        try:
            with anyio.fail_after(timeout_s):
                result = await self.peer.request(method, params)
        except RpcError as error:
            raise self._refused(method, error) from error
        except RpcClosedError as error:
            with anyio.move_on_after(LEAVE_S):
                await self.process.wait()
            code = self.process.returncode
            raise self.gone(f"`{self.name}` ended before it answered `{method}`, exit code {code}") from error
        except TimeoutError as error:
            raise self.gone(f"`{self.name}` did not answer `{method}` within {timeout_s:g} s") from error
        return result if isinstance(result, dict) else {}

    def _refused(self, method: str, error: RpcError) -> ProviderError:
        more = error.data.get("details") if isinstance(error.data, dict) else error.data
        said = f"{error.message}: {more}" if more else error.message
        details = {"method": method, "code": error.code, "data": error.data, "said": said}
        if error.code == AUTH_REQUIRED:
            return ProviderUnavailableError(f"`{self.name}` is not logged in: {said}", details=details)
        return ProviderError(f"`{self.name}` refused `{method}`: {said}", details=details)

    def gone(self, message: str) -> ProviderError:
        """What to raise of an agent that is no more, with its last words."""
        words = "\n".join(self._stderr)
        return ProviderError(message, details={"exit_code": self.process.returncode, "stderr": words})

    async def read_stderr(self) -> None:
        """Keep the agent's last words, so that it never waits for a reader."""
        assert self.process.stderr is not None
        rest = b""
        try:
            async for chunk in self.process.stderr:
                *lines, rest = (rest + chunk).split(b"\n")
                self._stderr.extend(line[-_LINE_BYTES:].decode("utf-8", "replace") for line in lines)
                rest = rest[-_LINE_BYTES:]
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return

    async def hang_up(self) -> None:
        """Close the agent's input, at which a well-behaved one ends by itself."""
        await self.peer.close_writer()

    async def end(self) -> None:
        """End the agent and all it started, in bounded time, whatever happened before."""
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self.tree.snapshot)
            if self.process.returncode is None:
                with anyio.move_on_after(LEAVE_S):
                    await self.hang_up()
                    await self.process.wait()
            await self.tree.kill()
            await self.process.aclose()


@asynccontextmanager
async def connect(
    name: str,
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    run_id: str,
    on_request: OnRequest,
    on_notification: OnNotification,
    on_garbage: OnGarbage,
) -> AsyncIterator[Connection]:
    """Start the agent; leaving ends it. Raises ProviderUnavailableError when it cannot be started.

    Nothing is read before the caller runs `connection.peer.run`.
    """
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
        raise ProviderUnavailableError(f"`{name}` cannot be started: {error}") from error
    connection = Connection(
        name,
        process,
        ProcessTree(process.pid, run_id=run_id),
        on_request=on_request,
        on_notification=on_notification,
        on_garbage=on_garbage,
    )
    try:
        yield connection
    finally:
        await connection.end()
