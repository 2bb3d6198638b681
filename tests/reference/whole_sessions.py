"""Supervised sessions of generated policies, on the monitor and on the naive reading, until the two differ."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from hypothesis import given, note, seed, settings
from hypothesis import strategies as st

from proctor.policies import PolicyError, RunContext

from .directed import smallest, supervised
from .generating import FAMILIES, contexts, nets, policies, tool_rules
from .supervised import Supervised
from .twins import Step, Variant, compiled

KINDS: Final = (*FAMILIES, "nets", "stacks")
SESSIONS: Final = 10
"""Sessions played under one policy."""

_ASKS: Final[dict[str, Any]] = {
    "name": "q",
    "rules": [],
    "tool_rules": [{"deny": ["b"], "action": "request_approval"}],
}


def judged_alike(kind: str, thorough: settings, seeded: int | None = None) -> Counter[str]:
    """Play sessions under policies of one kind on both; returns what was seen on the way.

    Raises AssertionError where the two differ, with the smallest policy and session as notes.
    """
    seen: Counter[str] = Counter()

    @thorough
    @given(_policies(kind), st.sampled_from(["live", "snapshot", "fold"]), contexts, st.integers(0, 2**32))
    def alike(policy: Any, variant: Variant, context: RunContext, number: int) -> None:
        seen.update(agree([policy, _ASKS], variant, context, number))

    played: Callable[[], None] = alike if seeded is None else seed(seeded)(alike)
    played()
    return seen


def agree(stack: list[Any], variant: Variant, context: RunContext, number: int) -> Counter[str]:
    """Play sessions on both; returns what was seen on the way."""
    seen: Counter[str] = Counter()
    try:
        policy = compiled(stack)
    except PolicyError:
        return seen

    def differ(played: list[Step]) -> bool:
        twins = Supervised(stack, policy, variant, context)
        try:
            twins.play(played)
        except AssertionError:
            return True
        seen.update(twins.seen)
        return False

    made = random.Random(number)
    for _ in range(SESSIONS):
        played = supervised(made, stack)
        if differ(played):
            shortest = smallest(played, differ)
            note(f"session: {shortest}")
            Supervised(stack, policy, variant, context).play(shortest)
    return seen


def _policies(kind: str) -> Any:
    if kind == "nets":
        some = st.lists(nets(), min_size=1, max_size=2, unique_by=lambda net: str(net["name"]))
        return policies(st.just([]), all_nets=some)
    if kind == "stacks":
        rules = st.lists(st.one_of(*FAMILIES.values()), max_size=3)
        return policies(rules, tools=st.lists(tool_rules, max_size=1))
    return policies(st.lists(FAMILIES[kind], min_size=1, max_size=2))
