"""What a client has asked for and not been answered yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import anyio
from mcp.shared.message import MessageMetadata, ServerMessageMetadata
from mcp.types import JSONRPCRequest

from proctor.policies.stream.calls import ToolCall

from .wire import RequestId


class PendingRequest:
    """A request that is only passed on."""

    __slots__ = ()


class Handshake(PendingRequest):
    """The client's `initialize`."""

    __slots__ = ()


class Listing(PendingRequest):
    """A page of `tools/list`; `first` when it begins the list."""

    __slots__ = ("first",)

    def __init__(self, *, first: bool) -> None:
        self.first = first


class PendingCall(PendingRequest):
    """A tool call: held at the gate, then with the server."""

    __slots__ = ("call", "progress", "running", "scope")

    def __init__(self, call: ToolCall, progress: RequestId | None) -> None:
        self.call = call
        self.progress = progress
        self.running = False
        self.scope = anyio.CancelScope()


Pending: TypeAlias = dict[RequestId, PendingRequest]


def asked_for(message: JSONRPCRequest) -> PendingRequest:
    """What a request that is no tool call asks for."""
    if message.method == "initialize":
        return Handshake()
    if message.method == "tools/list":
        return Listing(first=not (message.params or {}).get("cursor"))
    return PendingRequest()


def progress_token(params: Mapping[str, Any]) -> RequestId | None:
    """By what a request wants to hear of its progress."""
    meta = params.get("_meta")
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    return token if isinstance(token, str | int) else None


def about(message: Any, pending: Pending) -> MessageMetadata:
    """Which request a notice of progress belongs to: over HTTP it travels with that request's answer."""
    token = (message.params or {}).get("progressToken")
    if token is None:
        return None
    found = (key for key, asked in pending.items() if isinstance(asked, PendingCall) and asked.progress == token)
    request_id = next(found, None)
    return None if request_id is None else ServerMessageMetadata(related_request_id=request_id)
