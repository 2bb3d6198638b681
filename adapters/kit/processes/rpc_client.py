"""A provider's client that is spoken with in JSON-RPC on its pipes."""

from __future__ import annotations

from typing import Any

import anyio

from proctor.supervisor.errors import ProviderError

from ..wire.jsonrpc import OnGarbage, OnNotification, OnRequest, Peer, RpcClosedError, RpcError
from .client import ClientProcess


class RpcClient:
    """The conversation with a client: `peer` is our end. Nothing is read before `peer.run` runs.

    Args:
        process: the client.
        on_request: answers its requests; see `Peer`.
        on_notification: handles its notifications.
        on_garbage: gets each line that is not a message.
        tagged: whether messages carry `"jsonrpc": "2.0"`.
    """

    def __init__(
        self,
        process: ClientProcess,
        *,
        on_request: OnRequest,
        on_notification: OnNotification,
        on_garbage: OnGarbage,
        tagged: bool = True,
    ) -> None:
        self.process = process
        self.peer = Peer(
            process.stdout,
            process.stdin,
            on_request=on_request,
            on_notification=on_notification,
            on_garbage=on_garbage,
            tagged=tagged,
        )

    async def ask(self, method: str, params: dict[str, Any], *, timeout_s: float | None = None) -> dict[str, Any]:
        """Ask the client for something. Raises ProviderError if it refuses, is gone, or does not answer."""
        name = self.process.name
        try:
            with anyio.fail_after(timeout_s):
                result = await self.peer.request(method, params)
        except RpcError as error:
            raise self.refusal(method, error) from error
        except RpcClosedError as error:
            await self.process.left()
            code = self.process.exit_code
            raise self.process.gone(f"{name} ended before it answered `{method}`, exit code {code}") from error
        except TimeoutError as error:
            raise self.process.gone(f"{name} did not answer `{method}` within {timeout_s:g} s") from error
        return result if isinstance(result, dict) else {}

    def refusal(self, method: str, error: RpcError) -> ProviderError:
        """The error for a client that refuses; `said` in its details is the client's whole answer in words."""
        more = error.data.get("details") if isinstance(error.data, dict) else error.data
        answer = f"{error.message}: {more}" if more else error.message
        details = {"method": method, "code": error.code, "data": error.data, "said": answer}
        return ProviderError(f"{self.process.name} refused `{method}`: {answer}", details=details)
