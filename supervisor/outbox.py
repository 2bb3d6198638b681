"""The commands of a machine in the order they may be carried out: what depends on the record waits for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from proctor.policies.events import Event

from .commands import Append, Command

Late: TypeAlias = Callable[[], Command | None]
"""Makes a command when it is due, or None when it is not wanted any more."""


class Outbox:
    """Collects what one input leads to.

    # INVARIANT: what was handed to `after_record` comes out only when every event recorded before it is
    # durable, or when the store has failed.
    """

    __slots__ = ("_batch", "_fresh", "_ready", "_stored", "_ticket", "_waiting", "broken")

    def __init__(self) -> None:
        self.broken = False
        self._batch: list[Event] = []
        self._fresh: list[Late] = []
        self._ready: list[Command] = []
        self._waiting: list[tuple[int, Late]] = []
        self._ticket = 0
        self._stored = 0

    @property
    def awaited(self) -> int | None:
        """The first ticket somebody waits for."""
        return self._waiting[0][0] if self._waiting else None

    @property
    def written(self) -> bool:
        """Whether something was recorded since the last `take`."""
        return bool(self._batch)

    def record(self, event: Event) -> None:
        """Have an event stored."""
        self._batch.append(event)

    def at_once(self, command: Command) -> None:
        """Have a command carried out whatever becomes of the record."""
        self._ready.append(command)

    def after_record(self, late: Late) -> None:
        """Have a command carried out when all recorded so far is durable."""
        self._fresh.append(late)

    def stored(self, ticket: int) -> None:
        """Everything up to this ticket is durable."""
        self._stored = max(self._stored, ticket)

    def take(self) -> list[Command]:
        """The commands that may be carried out now."""
        if self._batch:
            self._ticket += 1
            self._ready.append(Append(ticket=self._ticket, events=tuple(self._batch)))
            self._batch.clear()
        if self._fresh:
            self._waiting.extend((self._ticket, late) for late in self._fresh)
            self._fresh.clear()
        while self._waiting and (self.broken or self._waiting[0][0] <= self._stored):
            command = self._waiting.pop(0)[1]()
            if command is not None:
                self._ready.append(command)
        ready, self._ready = self._ready, []
        return ready
