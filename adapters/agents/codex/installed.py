"""The client on this machine: where it is, and whether it works."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

from proctor.supervisor.errors import ProviderError, ProviderUnavailableError

from ...kit.jsonrpc import METHOD_NOT_FOUND, RpcError
from ...kit.tasks import helpers
from .connection import INSTALL, connect


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
            run_id=f"prepare-{uuid4().hex}",
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
