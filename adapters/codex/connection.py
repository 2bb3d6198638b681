"""The client's process and the conversation with it."""

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
from .settings import home
from .starting import StartTurn, turn_to_start

ANSWER_S: Final = 30.0
"""Seconds the client may take to answer; it answers at once or not at all."""
LEAVE_S: Final = 2.0
_STDERR_LINES: Final = 20
_CLIENT = {"name": "proctor", "title": "proctor", "version": "0"}


class Connection:
    """A running client. `peer` speaks with it, `tree` has all its processes."""

    def __init__(
        self,
        process: anyio.abc.Process,
        tree: ProcessTree,
        starting: StartTurn,
        *,
        on_request: OnRequest,
        on_notification: OnNotification,
        on_garbage: OnGarbage,
    ) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.tree = tree
        self.process = process
        self._starting = starting
        self.peer = Peer(
            process.stdout,
            process.stdin,
            on_request=on_request,
            on_notification=on_notification,
            on_garbage=on_garbage,
            tagged=False,
        )
        self._stderr: deque[str] = deque(maxlen=_STDERR_LINES)

    async def ask(self, method: str, params: dict[str, Any], *, timeout_s: float = ANSWER_S) -> dict[str, Any]:
        """Ask the client for something. Raises ProviderError if it refuses, is gone, or does not answer."""
        try:
            with anyio.fail_after(timeout_s):
                result = await self.peer.request(method, params)
        except RpcError as error:
            raise ProviderError(
                f"codex refused `{method}`: {error.message}", details={"method": method, "code": error.code}
            ) from error
        except RpcClosedError as error:
            raise self.gone(f"codex ended before it answered `{method}`") from error
        except TimeoutError as error:
            raise self.gone(f"codex did not answer `{method}` within {timeout_s:g} s") from error
        return result if isinstance(result, dict) else {}

    async def greet(self) -> None:
        """Open the conversation. Raises ProviderUnavailableError when the client cannot sign in."""
        await self.ask("initialize", {"clientInfo": _CLIENT, "capabilities": {"experimentalApi": True}})
        self._starting.over()
        await self.peer.notify("initialized")
        account = await self.ask("account/read", {})
        if account.get("requiresOpenaiAuth") and account.get("account") is None:
            raise ProviderUnavailableError(
                "codex is not logged in; run `codex login`, or set `model_provider` in the adapter's `config`"
            )

    def gone(self, message: str) -> ProviderError:
        """What to raise of a client that is no more, with its last words."""
        words = "\n".join(self._stderr)
        return ProviderError(message, details={"exit_code": self.process.returncode, "stderr": words})

    async def read_stderr(self) -> None:
        """Keep the client's last words, so that it never waits for a reader."""
        assert self.process.stderr is not None
        rest = b""
        try:
            async for chunk in self.process.stderr:
                *lines, rest = (rest + chunk).split(b"\n")
                self._stderr.extend(line.decode("utf-8", "replace") for line in lines)
                rest = rest[-4096:]
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return

    async def hang_up(self) -> None:
        """Close the client's input, at which it ends by itself."""
        await self.peer.close_writer()

    async def end(self) -> None:
        """End the client and all it started, in bounded time, whatever happened before."""
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
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    run_id: str,
    on_request: OnRequest,
    on_notification: OnNotification,
    on_garbage: OnGarbage,
) -> AsyncIterator[Connection]:
    """Start the client; leaving ends it. Raises ProviderUnavailableError when it cannot be started.

    Nothing is read before the caller runs `connection.peer.run`.
    """
    starting = await turn_to_start(home(env))
    try:
        process = await _started(command, cwd, marked_environment(run_id, env))
        connection = Connection(
            process,
            ProcessTree(process.pid, run_id=run_id),
            starting,
            on_request=on_request,
            on_notification=on_notification,
            on_garbage=on_garbage,
        )
        try:
            yield connection
        finally:
            await connection.end()
    finally:
        starting.over()


async def _started(command: Sequence[str], cwd: Path, env: Mapping[str, str]) -> anyio.abc.Process:
    try:
        return await anyio.open_process(
            list(command), stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=cwd, env=env, start_new_session=True
        )
    except OSError as error:
        raise ProviderUnavailableError(
            f"codex cannot be started: {error}; install it with `pip install 'proctor[codex]'`"
        ) from error
