"""Where agents connect: this process's own pipes, or streamable HTTP on loopback."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

from ..messages import Incoming, Outgoing
from .stdio import StdioClient

Serve: TypeAlias = Callable[[tuple[Incoming, Outgoing]], Awaitable[None]]
"""Serves one client until it hangs up."""


class Downstream(Protocol):
    """Takes clients."""

    @property
    def ends_with_client(self) -> bool:
        """Whether a connection that fails ends the run: there will be no other client."""
        ...

    async def take(self, serve: Serve) -> None:
        """Serve clients until there will be no more."""
        ...


class StdioDownstream:
    """One client, on standard input and output or on other file descriptors."""

    ends_with_client = True

    def __init__(self, reads: int = 0, writes: int = 1) -> None:
        self._client = StdioClient(reads, writes)

    async def take(self, serve: Serve) -> None:
        await serve((self._client, self._client))
