"""What a client has asked for and not been answered yet."""

from __future__ import annotations

from typing import TypeAlias

import anyio

from proctor.policies.calls import ToolCall

from .wire import RequestId


class Asked:
    """A request that is only passed on."""

    __slots__ = ()


class Handshake(Asked):
    """The client's `initialize`."""

    __slots__ = ()


class Listing(Asked):
    """A page of `tools/list`; `first` when it begins the list."""

    __slots__ = ("first",)

    def __init__(self, *, first: bool) -> None:
        self.first = first


class Call(Asked):
    """A tool call: held at the gate, then with the server."""

    __slots__ = ("call", "progress", "running", "scope")

    def __init__(self, call: ToolCall, progress: RequestId | None) -> None:
        self.call = call
        self.progress = progress
        self.running = False
        self.scope = anyio.CancelScope()


Pending: TypeAlias = dict[RequestId, Asked]
