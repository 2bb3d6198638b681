"""The record of one run on its way to the store, and the commands that wait for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from proctor.policies.stream.events import Event

from ..redaction import Redactor
from .boundary.commands import Command

Late: TypeAlias = Callable[[], Command | None]
"""Makes a command when it is due, or None when it is not wanted any more."""


@dataclass(slots=True, eq=False)
class Outbox:
    """Collects what one input leads to. `unwritten` are the events nobody has taken away to store them, exact until
    then; what is taken has its secrets redacted.

    # INVARIANT: what was handed to `after_record` comes out only when every event recorded before it is
    # durable, or when the store has failed.
    """

    _redactor: Redactor
    broken: bool = False
    unwritten: list[Event] = field(default_factory=list)
    unwritten_bytes: int = 0
    _lines: list[bytes] = field(default_factory=list)
    _ready: list[Command] = field(default_factory=list)
    _waiting: deque[tuple[int, Late]] | None = None
    _taken: int = 0
    _stored: int = 0

    def take_record(self) -> list[Event]:
        """The events to store next."""
        taken, lines = self.unwritten, self._lines
        self.unwritten, self._lines, self.unwritten_bytes = [], [], 0
        self._taken += len(taken)
        return self._redactor.events(taken, lines)

    def put(self, event: Event, line: bytes | None, size: int) -> None:
        """Record an event of about so many bytes; `line` is it encoded, None where that cannot be."""
        self.unwritten.append(event)
        if line is not None:
            self._lines.append(line)
        self.unwritten_bytes += size

    def at_once(self, command: Command) -> None:
        """Have a command carried out whatever becomes of the record."""
        self._ready.append(command)

    def after_record(self, late: Late) -> None:
        """Have a command carried out when all recorded so far is durable."""
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append((self._taken + len(self.unwritten), late))

    def stored(self, count: int) -> None:
        """The first `count` of the events recorded are durable."""
        self._stored = max(self._stored, count)

    def take(self) -> Sequence[Command]:
        """The commands that may be carried out now."""
        waiting = self._waiting
        while waiting and (self.broken or waiting[0][0] <= self._stored):
            command = waiting.popleft()[1]()
            if command is not None:
                self._ready.append(command)
        if not self._ready:
            return ()
        ready, self._ready = self._ready, []
        return ready
