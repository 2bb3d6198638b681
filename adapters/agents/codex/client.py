"""The client on this machine: where it is, the start of its process, and the conversation with it.

Clients that share a home start one after another. The first client of a home makes its databases there before it
answers anything, and another one that meets them half made ends with an error. So each start holds a lock on the
folder until the client has answered; it holds between the threads and the processes of one machine, and ends with
the process that took it.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import anyio

from proctor.supervisor.errors import ProviderError, ProviderUnavailableError

from ...kit.processes.client import ClientProcess, start_client
from ...kit.processes.rpc_client import RpcClient
from ...kit.tasks import helpers
from ...kit.wire.jsonrpc import METHOD_NOT_FOUND, OnGarbage, OnNotification, OnRequest, RpcError
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


ANSWER_S: Final = 30.0
"""Seconds the client may take to answer; it answers at once or not at all."""
INSTALL: Final = "pip install 'proctor[codex]'"
_CLIENT: Final = {"name": "proctor", "title": "proctor", "version": "0"}


class CodexConnection(RpcClient):
    """A running client."""

    def __init__(
        self,
        process: ClientProcess,
        starting: StartTurn,
        *,
        on_request: OnRequest,
        on_notification: OnNotification,
        on_garbage: OnGarbage,
    ) -> None:
        super().__init__(
            process,
            on_request=on_request,
            on_notification=on_notification,
            on_garbage=on_garbage,
            tagged=False,
        )
        self._starting = starting

    async def ask(self, method: str, params: dict[str, Any], *, timeout_s: float | None = ANSWER_S) -> dict[str, Any]:
        """See `RpcClient.ask`."""
        return await super().ask(method, params, timeout_s=timeout_s)

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


@asynccontextmanager
async def connect(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    mark: str,
    on_request: OnRequest,
    on_notification: OnNotification,
    on_garbage: OnGarbage,
) -> AsyncIterator[CodexConnection]:
    """Start the client; leaving ends it. Raises ProviderUnavailableError when it cannot be started.

    Nothing is read before the caller runs `connection.peer.run`.
    """
    starting = await turn_to_start(env)
    try:
        async with start_client(
            "codex", command, cwd=cwd, env=env, mark=mark, advice=f"install it with `{INSTALL}`"
        ) as process:
            yield CodexConnection(
                process,
                starting,
                on_request=on_request,
                on_notification=on_notification,
                on_garbage=on_garbage,
            )
    finally:
        starting.over()


def find_client() -> str:
    """The executable of the package, or else that on PATH. Raises ProviderUnavailableError."""
    try:
        return str(import_module("codex_cli_bin").bundled_codex_path())
    except (ImportError, FileNotFoundError):
        found = shutil.which("codex")
    if found is None:
        raise ProviderUnavailableError(f"codex is not installed; install it with `{INSTALL}`")
    return found


async def check_client(command: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> None:
    """Start the client and see that it is logged in. Raises ProviderUnavailableError."""
    async with (
        connect(
            command,
            cwd=cwd,
            env=env,
            mark=f"prepare-{uuid4().hex}",
            on_request=_no_requests,
            on_notification=_no_interest,
            on_garbage=_no_garbage,
        ) as connection,
        helpers() as tasks,
    ):
        tasks.start_soon(connection.process.read_stderr)
        tasks.start_soon(connection.peer.run)
        try:
            await connection.greet()
        except ProviderUnavailableError:
            raise
        except ProviderError as error:
            raise ProviderUnavailableError(
                f"codex does not work: {error}; install it with `{INSTALL}`", details=error.details
            ) from error


async def _no_requests(method: str, params: dict[str, Any]) -> None:
    raise RpcError(METHOD_NOT_FOUND, f"`{method}` is not answered here")


async def _no_interest(method: str, params: dict[str, Any]) -> None:
    return


async def _no_garbage(line: bytes) -> None:
    return
