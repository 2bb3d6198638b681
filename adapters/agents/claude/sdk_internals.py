"""The one file that reaches below the SDK's public surface.

The SDK drops records it does not know and has no call for the session's live totals, which alone count
sub-agents while they run; both are there one layer down. It also waits for the client's process, without
a bound, once the client's output has ended: that is told here. What it would tell a client that is dead by then
is dropped: the error would come up in a task of the SDK's own, and the end of the output says it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import anyio
from claude_agent_sdk import ClaudeSDKClient, CLIConnectionError, __version__

from proctor.supervisor.errors import ProviderError, ProviderUnavailableError

ANSWER_S = 30.0
"""Seconds the client may take to answer; it does so in milliseconds, whatever its tools are at."""


class Wire:
    """A connected client's raw records and control requests. Raises ProviderUnavailableError if hidden."""

    def __init__(self, client: ClaudeSDKClient) -> None:
        self._query: Any = getattr(client, "_query", None)
        transport: Any = getattr(client, "_transport", None)
        process: Any = getattr(transport, "_process", None)
        needed = ("receive_messages", "_send_control_request")
        if process is None or not all(hasattr(self._query, name) for name in needed):
            raise ProviderUnavailableError(
                f"claude-agent-sdk {__version__} cannot be supervised; pip install 'proctor[claude]' brings "
                "a version that can"
            )
        self._process = process
        self.output_ended = _output_ended(process)
        _drop_what_comes_too_late(transport, process)

    @property
    def returncode(self) -> int | None:
        """What the client's process, or its guardian, ended with; None while it runs."""
        code: int | None = self._process.returncode
        return code

    def records(self) -> AsyncGenerator[dict[str, Any]]:
        """Every record of the session, in order; close it when done."""
        records: AsyncGenerator[dict[str, Any]] = self._query.receive_messages()
        return records

    async def model_usage(self) -> dict[str, Any]:
        """The session's totals per model, sub-agents and earlier runs included.

        Raises ProviderError when the client does not answer within `ANSWER_S`, or answers something else.
        """
        with anyio.move_on_after(ANSWER_S) as asking:
            answer = await self._query._send_control_request({"subtype": "get_usage"})
        if asking.cancelled_caught:
            raise ProviderError(f"the Claude Code client did not say within {ANSWER_S:g} seconds what it used")
        try:
            usage: dict[str, Any] = answer["session"]["model_usage"]
        except (LookupError, TypeError):
            raise ProviderError("the Claude Code client does not say what it used") from None
        return usage


def _drop_what_comes_too_late(transport: Any, process: Any) -> None:
    write = transport.write

    async def written(data: str) -> None:
        try:
            await write(data)
        except CLIConnectionError:
            if process.returncode is None:
                raise

    transport.write = written


def _output_ended(process: Any) -> anyio.Event:
    """Set when the SDK begins to wait for the process, which it does at the end of the client's output."""
    ended, wait = anyio.Event(), process.wait

    async def wait_and_note() -> Any:
        ended.set()
        return await wait()

    process.wait = wait_and_note
    return ended
