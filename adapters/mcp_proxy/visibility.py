"""Which tools could be called now."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import anyio


class Visibility:
    """What of a list of tools may be shown to the clients of one run.

    Args:
        narrow: gives those of some tools that could be called now.
        only: names beyond which nothing is shown; None knows no such bound.
    """

    def __init__(self, narrow: Callable[[Sequence[str]], list[str]], only: Collection[str] | None = None) -> None:
        self._narrow = narrow
        self._only = None if only is None else frozenset(only)
        self._version = 0
        self._moved = anyio.Event()

    def touch(self) -> None:
        """A call was decided or ended: other tools may be callable now."""
        self._version += 1
        moved, self._moved = self._moved, anyio.Event()
        moved.set()

    def knows(self, name: str) -> bool:
        """Whether a tool of this name may be offered at all."""
        return self._only is None or name in self._only

    def narrow(self, names: Sequence[str]) -> list[str]:
        """The tools among `names` that could be called now."""
        return self._narrow([name for name in names if self.knows(name)])

    async def moved(self, seen: int) -> int:
        """Return when `touch` was called oftener than `seen`, the number returned last; 0 at first."""
        while self._version == seen:
            await self._moved.wait()
        return self._version
