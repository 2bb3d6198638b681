"""Supervised sessions of generated policies, on the monitor and on the naive reading, until the two differ."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from hypothesis import given, seed, settings
from hypothesis import strategies as st

from proctor.policies import RunContext

from . import agreeing
from .directed import supervised
from .generating import FAMILIES, contexts, nets, policies, tool_rules
from .supervised import Supervised
from .twins import Variant

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
    made = random.Random(number)
    played = (supervised(made, stack) for _ in range(SESSIONS))
    return agreeing.agree(stack, lambda policy: Supervised(stack, policy, variant, context), played)


def _policies(kind: str) -> Any:
    if kind == "nets":
        some = st.lists(nets(), min_size=1, max_size=2, unique_by=lambda net: str(net["name"]))
        return policies(st.just([]), all_nets=some)
    if kind == "stacks":
        rules = st.lists(st.one_of(*FAMILIES.values()), max_size=3)
        return policies(rules, tools=st.lists(tool_rules, max_size=1))
    return policies(st.lists(FAMILIES[kind], min_size=1, max_size=2))
