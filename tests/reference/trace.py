"""A whole session: the proposed calls, those that ran, their outcomes, the user's messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Rule: TypeAlias = Mapping[str, Any]
"""A rule as in a policy's document."""


@dataclass
class Call:
    """One call; each field of its life is a clock reading, or None.

    `shown` are the rules that a person was shown; `lost`: another call started with its id.
    """

    id: str
    tool: str
    input: dict[str, Any]
    turn: int
    requested: int
    run: int = 1
    started: int | None = None
    completed: int | None = None
    failed: int | None = None
    denied: int | None = None
    output: Any = None
    approved: bool = False
    shown: frozenset[str] = frozenset()
    lost: bool = False

    @property
    def ended(self) -> int | None:
        """When it ended; one that ran despite a denial ends with its run."""
        if self.started is None:
            return self.denied
        return self.failed if self.completed is None else self.completed


@dataclass
class World:
    """A session so far, under one policy's names."""

    policy: Rule
    calls: list[Call] = field(default_factory=list)
    user_texts: list[str] = field(default_factory=list)
    clock: int = 0

    def tick(self) -> int:
        """The next clock reading."""
        self.clock += 1
        return self.clock

    def started(self) -> list[Call]:
        """The calls that count, in the order in which they started."""
        return sorted((c for c in self.calls if c.started is not None), key=lambda c: c.started or 0)

    def completed(self) -> list[Call]:
        """The calls that succeeded, in the order in which they did."""
        return sorted((c for c in self.calls if c.completed is not None), key=lambda c: c.completed or 0)

    def only(self, calls: list[Call]) -> World:
        """The same session with only some of its calls."""
        return World(self.policy, calls, self.user_texts, self.clock)

    def under(self, policy: Rule) -> World:
        """The same session under another policy's names."""
        return World(policy, self.calls, self.user_texts, self.clock)
