"""What a run has done beside the reading of its agent: its record written, a check asked, somebody's approval."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from .foreign.apart import Apart
from .foreign.isolation import SelfCancelledError


class Errands:
    """Each goes on in a task of its own. `failed` is called with what one raises, unless it cancelled itself."""

    __slots__ = ("_failed", "_going")

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        self._failed = failed
        self._going: tuple[Apart[Any], ...] = ()

    def start(self, call: Callable[[], Awaitable[None]]) -> None:
        """Begin one; it may be left behind at the end of the run if it does not end."""
        self._going = (*self._going, Apart(call, over=self._is_over))

    async def end(self) -> None:
        """Cancel those that go on, and wait until they have ended or are left behind."""
        going = self._going
        for errand in going:
            errand.cancel()
        for errand in going:
            await errand.released(0)

    def _is_over(self, errand: Apart[Any]) -> None:
        self._going = tuple(one for one in self._going if one is not errand)
        if errand.error is not None and not isinstance(errand.error, SelfCancelledError):
            self._failed(errand.error)
