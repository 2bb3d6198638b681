"""What the two sides of a connection say to each other: messages as the MCP transports carry them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol, TypeAlias

from mcp.shared.message import SessionMessage
from mcp.types import (
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCResponse,
)
from pydantic import ValidationError

from ..kit.values.printable import printable

RequestId: TypeAlias = str | int

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

_SHORT = 200


class Incoming(Protocol):
    """Messages of one side; an exception among them is something it sent that is no message."""

    def __aiter__(self) -> AsyncIterator[SessionMessage | Exception]: ...


class Outgoing(Protocol):
    """Where messages to one side go."""

    async def send(self, item: SessionMessage, /) -> None: ...


def failure(request_id: RequestId | None, code: int, message: str) -> SessionMessage:
    """A request answered with an error."""
    error = JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=code, message=message))
    return SessionMessage(error)


def refusal(request_id: RequestId, text: str) -> SessionMessage:
    """A tool call answered with a tool error that the model reads."""
    result = {"content": [{"type": "text", "text": text}], "isError": True}
    return SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=request_id, result=result))


def tools_changed() -> SessionMessage:
    """The notice that the tools on offer have changed."""
    return SessionMessage(JSONRPCNotification(jsonrpc="2.0", method="notifications/tools/list_changed"))


def greeting(result: Mapping[str, Any]) -> dict[str, Any]:
    """A server's answer to `initialize` as its client gets it: tools may change, and no call runs as a task."""
    capabilities = {key: value for key, value in (result.get("capabilities") or {}).items() if key != "tasks"}
    if isinstance(capabilities.get("tools"), dict):
        capabilities["tools"] = {**capabilities["tools"], "listChanged": True}
    return {**result, "capabilities": capabilities}


def output_of(result: Mapping[str, Any]) -> Any:
    """What a tool returned: its structured content, else its text, else its content blocks."""
    if result.get("structuredContent") is not None:
        return result["structuredContent"]
    content = result.get("content")
    if isinstance(content, list) and content and all(_is_text(block) for block in content):
        return "\n".join(block["text"] for block in content)
    return content


def unread(error: Exception) -> str:
    """What one side sent that is no message, or why it could not be read, for a terminal."""
    sent = error.errors()[0]["input"] if isinstance(error, ValidationError) else error
    return short(str(sent))


def short(text: str) -> str:
    """A foreign text as one short line for people."""
    return printable(text)[:_SHORT]


def _is_text(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)
