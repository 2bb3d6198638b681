"""The one file that reaches below the SDK's public surface.

The SDK drops records it does not know and has no call for the session's live totals, which alone count
sub-agents while they run; both are there one layer down.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import anyio
from claude_agent_sdk import ClaudeSDKClient, __version__

from proctor.supervisor.errors import ProviderUnavailableError

USAGE_BOUND_S = 5.0


class Wire:
    """A connected client's raw records and control requests. Raises ProviderUnavailableError if hidden."""

    def __init__(self, client: ClaudeSDKClient) -> None:
        self._query: Any = getattr(client, "_query", None)
        needed = ("receive_messages", "_send_control_request")
        if not all(hasattr(self._query, name) for name in needed):
            raise ProviderUnavailableError(
                f"claude-agent-sdk {__version__} cannot be supervised; pip install 'proctor[claude]' brings "
                "a version that can"
            )

    def records(self) -> AsyncGenerator[dict[str, Any]]:
        """Every record of the session, in order; close it when done."""
        records: AsyncGenerator[dict[str, Any]] = self._query.receive_messages()
        return records

    async def model_usage(self) -> dict[str, Any]:
        """The session's totals per model, sub-agents and earlier runs included. Raises TimeoutError."""
        with anyio.fail_after(USAGE_BOUND_S):
            answer = await self._query._send_control_request({"subtype": "get_usage"})
        usage: dict[str, Any] = answer["session"]["model_usage"]
        return usage
