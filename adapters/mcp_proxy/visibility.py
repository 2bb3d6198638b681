"""Which tools could be called now: the stored events folded into a monitor of its own, as they are stored."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import anyio
import msgspec

from proctor.policies import CompiledPolicy, Monitor, Policy, RunContext, compile_policy
from proctor.policies.stream.events import Event, RunStarted


class Visibility:
    """A Publisher that knows what of a list of tools may be shown.

    Args:
        only: names beyond which nothing is shown; None knows no such bound.
    """

    def __init__(self, only: Collection[str] | None = None) -> None:
        self._only = None if only is None else frozenset(only)
        self._compiled: CompiledPolicy | None = None
        self._monitor: Monitor | None = None
        self._version = 0
        self._moved = anyio.Event()

    def under(self, policy: Policy) -> None:
        """Judge by this policy."""
        self._compiled = compile_policy(policy)

    def __call__(self, event: Event) -> None:
        """An event was stored."""
        if isinstance(event, RunStarted) and self._compiled is not None:
            self._monitor = self._compiled.monitor(_context(event.metadata))
        if self._monitor is not None:
            self._monitor.observe(event)
            self._version += 1
            moved, self._moved = self._moved, anyio.Event()
            moved.set()

    def knows(self, name: str) -> bool:
        """Whether a tool of this name may be offered at all."""
        return self._only is None or name in self._only

    def narrow(self, names: Sequence[str]) -> list[str]:
        """The tools among `names` that could be called now; none before the run goes on."""
        if self._monitor is None:
            return []
        return self._monitor.narrow([name for name in names if self.knows(name)])

    async def moved(self, seen: int) -> int:
        """Return when something was stored that `seen`, the number returned last, does not count; 0 at first."""
        while self._version == seen:
            await self._moved.wait()
        return self._version


def _context(metadata: dict[str, Any]) -> RunContext:
    return msgspec.convert(metadata.get("context", {}), RunContext)
