"""Sessions played on a policy and on its second reading: what was seen, or the shortest on which they differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from hypothesis import note

from proctor.policies import CompiledPolicy, PolicyError

from .directed import smallest
from .twins import Step, compiled


class Pair(Protocol):
    """A policy and its second reading, side by side; `seen` counts what was met on the way."""

    seen: Counter[str]

    def play(self, steps: list[Step]) -> None:
        """Raises AssertionError where they differ."""
        ...


def agree(stack: list[Any], pair: Callable[[CompiledPolicy], Pair], played: Iterable[list[Step]]) -> Counter[str]:
    """Play sessions on both; returns what was seen on the way. A stack that does not load says nothing."""
    seen: Counter[str] = Counter()
    try:
        policy = compiled(stack)
    except PolicyError:
        return seen

    def differ(steps: list[Step]) -> bool:
        both = pair(policy)
        try:
            both.play(steps)
        except AssertionError:
            return True
        seen.update(both.seen)
        return False

    for steps in played:
        if differ(steps):
            shortest = smallest(steps, differ)
            note(f"session: {shortest}")
            pair(policy).play(shortest)
    return seen
