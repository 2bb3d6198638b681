"""The shell's side of shared budgets: the store is asked what the machine wants to know."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from ...machine.boundary import inputs
from ...machine.boundary.commands import Reserve, Settle
from ...ports.adapters import Store
from ...ports.ledger import Drawn
from ..latch import Latch
from .isolation import contained, silence


class Reserving:
    """Draws on the budgets of a store for one run, and feeds the answers to its machine.

    Args:
        store: keeps the budgets.
        run_id: the run.
        epoch: of its owner.
        within_s: seconds that the store may take to answer.
        feed: takes an input for the machine.
        now_ms: the moment.
        failed: is told of an error.
    """

    __slots__ = ("_answered", "_epoch", "_failed", "_feed", "_now_ms", "_run_id", "_store", "_within_s")

    def __init__(
        self,
        store: Store,
        run_id: str,
        epoch: int,
        *,
        within_s: float,
        feed: Callable[[inputs.Input], None],
        now_ms: Callable[[], int],
        failed: Callable[[str, Exception], None],
    ) -> None:
        self._store = store
        self._run_id = run_id
        self._epoch = epoch
        self._within_s = within_s
        self._feed = feed
        self._now_ms = now_ms
        self._failed = failed
        self._answered = Latch()

    async def answered(self) -> None:
        """Wait until the store has answered the first draw."""
        await self._answered.wait()

    async def reserve(self, command: Reserve) -> None:
        """Draw, and tell the machine what came of it."""
        drawn, error = await self._answer(lambda: self._store.reserve(self._run_id, command.draws, epoch=self._epoch))
        try:
            self._feed(inputs.Reserved(now_ms=self._now_ms(), drawn=drawn, error=error))
        finally:
            self._answered.set()

    async def settle(self, command: Settle) -> None:
        """Tell the store that the run draws no more, and the machine what came of it."""
        drawn, error = await self._answer(lambda: self._store.settle(self._run_id, command.used, epoch=self._epoch))
        self._feed(inputs.Settled(now_ms=self._now_ms(), drawn=drawn, error=error))

    async def _answer(self, ask: Callable[[], Awaitable[list[Drawn]]]) -> tuple[tuple[Drawn, ...], Exception | None]:
        """What the store answers, or how it failed to."""
        with anyio.move_on_after(self._within_s):
            try:
                return tuple(await contained(ask)), None
            except Exception as error:
                self._failed("budgets.failed", error)
                return (), error
        return (), silence(self._within_s)
