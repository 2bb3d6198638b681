"""What a client has asked for and not been answered yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

import anyio
from mcp.shared.message import MessageMetadata, ServerMessageMetadata
from mcp.types import JSONRPCRequest

from proctor.policies.stream.calls import ToolCall

from .messages import RequestId


class PendingRequest:
    """A request that is only passed on: `id` is the client's own, `withdrawn` whether the client has cancelled it."""

    __slots__ = ("id", "withdrawn")

    def __init__(self, id: RequestId) -> None:
        self.id = id
        self.withdrawn = False


class Handshake(PendingRequest):
    """The client's `initialize`."""

    __slots__ = ()


class Listing(PendingRequest):
    """A page of `tools/list`; `first` when it begins the list."""

    __slots__ = ("first",)

    def __init__(self, id: RequestId, *, first: bool) -> None:
        super().__init__(id)
        self.first = first


class PendingCall(PendingRequest):
    """A tool call: held at the gate, then with the server."""

    __slots__ = ("call", "progress", "running", "scope")

    def __init__(self, id: RequestId, call: ToolCall, progress: RequestId | None) -> None:
        super().__init__(id)
        self.call = call
        self.progress = progress
        self.running = False
        self.scope = anyio.CancelScope()


class Pending:
    """What a client has asked for and has no answer to.

    The server is asked under numbers of the proxy's own: servers read ids as their language does (2**53 + 1 is 2**53
    in JavaScript), and answer what was cancelled when its id may be another request's already.
    """

    def __init__(self) -> None:
        self._by_id: dict[RequestId, PendingRequest] = {}
        self._by_number: dict[int, PendingRequest] = {}
        self._numbers = count(1)

    def __iter__(self) -> Iterator[PendingRequest]:
        """Those the client waits for, and calls that it has withdrawn and the server works on still."""
        return iter(
            [*{id(request): request for request in (*self._by_id.values(), *self._by_number.values())}.values()]
        )

    def has(self, request_id: Any) -> bool:
        """Whether the client waits for an answer under this id."""
        return request_id in self._by_id

    def add(self, request: PendingRequest) -> None:
        """The client asks."""
        self._by_id[request.id] = request

    def passed_on(self, request: PendingRequest) -> int:
        """It goes to the server; gives the number it is asked under."""
        number = next(self._numbers)
        self._by_number[number] = request
        return number

    def withdraw(self, request_id: Any) -> tuple[PendingRequest, int | None] | None:
        """What the client cancels by its id, and the number the server knows it by, if it does; None if nothing."""
        usable = isinstance(request_id, str | int) and not isinstance(request_id, bool)
        request = self._by_id.get(request_id) if usable else None
        if request is None:
            return None
        number = next((number for number, each in self._by_number.items() if each is request), None)
        if number is not None and not isinstance(request, Handshake):
            request.withdrawn = True
            del self._by_id[request.id]
        return request, number

    def answered(self, number: Any) -> PendingRequest | None:
        """What the server answers; None for what it was not asked."""
        request = self._by_number.pop(number, None) if isinstance(number, int) else None
        if request is not None and not request.withdrawn:
            self._by_id.pop(request.id, None)
        return request

    def drop(self, request: PendingRequest) -> None:
        """Nobody waits for it any more."""
        if self._by_id.get(request.id) is request:
            del self._by_id[request.id]
        self._by_number = {number: each for number, each in self._by_number.items() if each is not request}


def asked_for(message: JSONRPCRequest) -> PendingRequest:
    """What a request that is no tool call asks for."""
    if message.method == "initialize":
        return Handshake(message.id)
    if message.method == "tools/list":
        return Listing(message.id, first=not (message.params or {}).get("cursor"))
    return PendingRequest(message.id)


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
    found = (request.id for request in pending if isinstance(request, PendingCall) and request.progress == token)
    request_id = next(found, None)
    return None if request_id is None else ServerMessageMetadata(related_request_id=request_id)
