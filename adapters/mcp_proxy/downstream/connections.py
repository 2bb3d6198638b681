"""Where agents connect: this process's own pipes, or streamable HTTP on loopback."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

from ..messages import Incoming, Outgoing

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
