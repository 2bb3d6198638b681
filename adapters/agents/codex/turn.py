"""The one turn of a run: whether it has begun, whether it is over, and the interrupt that ends it."""

from __future__ import annotations

from typing import Any, Final

import anyio

from proctor.supervisor.errors import ProviderError

from .connection import Connection
from .translation import Translation

INTERRUPT_S: Final = 1.0
CLEAN_UP_S: Final = 1.0


class Turn:
    """The turn; `interrupted_by` is `ladder`, or `answer` for an answer to the client that ends it.

    Args:
        said: what the client reported.
    """

    def __init__(self, said: Translation) -> None:
        self.over = False
        self.interrupted_by: str | None = None
        self._said = said
        self._begun = anyio.Event()

    def begins(self) -> None:
        """Take note that an interrupt has something to end, or never will have."""
        self._begun.set()

    def ends(self) -> None:
        """Take note that it is over."""
        self.over = True
        self._begun.set()

    async def interrupt(self, connection: Connection) -> dict[str, Any]:
        """Interrupt it once it has begun, unless it is over; says who did. Raises ProviderError, TimeoutError."""
        # a second interrupt of one turn is never answered, one before the client says that it began is refused
        if self.interrupted_by is None and not self.over:
            self.interrupted_by = "ladder"
            with anyio.fail_after(INTERRUPT_S):
                await self._begun.wait()
            if not self.over:
                await self._ask(connection)
        return {"interrupted_by": self.interrupted_by}

    async def clean_up(self, connection: Connection) -> None:
        """End the commands that the interrupt leaves running. Raises ProviderError."""
        params = {"threadId": self._said.threads.own}
        await connection.ask("thread/backgroundTerminals/clean", params, timeout_s=CLEAN_UP_S)

    async def _ask(self, connection: Connection) -> None:
        params = {"threadId": self._said.threads.own, "turnId": self._said.turn_id}
        try:
            await connection.ask("turn/interrupt", params, timeout_s=INTERRUPT_S)
        except ProviderError:
            if not self.over:  # otherwise it was too late, which is no failure
                raise
