"""The client's process and the conversation with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from proctor.supervisor.errors import ProviderUnavailableError

from ...kit.client_process import ClientProcess, start_client
from ...kit.jsonrpc import OnGarbage, OnNotification, OnRequest
from ...kit.rpc_client import RpcClient
from .starting import StartTurn, turn_to_start

ANSWER_S: Final = 30.0
"""Seconds the client may take to answer; it answers at once or not at all."""
INSTALL: Final = "pip install 'proctor[codex]'"
_CLIENT: Final = {"name": "proctor", "title": "proctor", "version": "0"}


class Connection(RpcClient):
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
    run_id: str,
    on_request: OnRequest,
    on_notification: OnNotification,
    on_garbage: OnGarbage,
) -> AsyncIterator[Connection]:
    """Start the client; leaving ends it. Raises ProviderUnavailableError when it cannot be started.

    Nothing is read before the caller runs `connection.peer.run`.
    """
    starting = await turn_to_start(env)
    try:
        async with start_client(
            "codex", command, cwd=cwd, env=env, run_id=run_id, advice=f"install it with `{INSTALL}`"
        ) as process:
            yield Connection(
                process,
                starting,
                on_request=on_request,
                on_notification=on_notification,
                on_garbage=on_garbage,
            )
    finally:
        starting.over()
