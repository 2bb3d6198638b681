"""The conversation with an agent."""

from __future__ import annotations

from typing import Final

from proctor.supervisor.errors import ProviderError, ProviderUnavailableError

from ...kit.processes.rpc_client import RpcClient
from ...kit.wire.jsonrpc import RpcError

AUTH_REQUIRED: Final = -32000


class AcpConnection(RpcClient):
    """A running agent; a refusal because nobody is logged in is ProviderUnavailableError."""

    def refusal(self, method: str, error: RpcError) -> ProviderError:
        """See `RpcClient.refusal`."""
        refused = super().refusal(method, error)
        if error.code != AUTH_REQUIRED:
            return refused
        answer = refused.details["said"]
        return ProviderUnavailableError(f"{self.process.name} is not logged in: {answer}", details=refused.details)
