"""Whole supervised sessions against the naive reading: live, restored from snapshots and folded from the record."""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from reference.directed import smallest, supervised
from reference.generating import FAMILIES, contexts, nets, policies, tool_rules
from reference.supervised import Supervised
from reference.twins import Step, Variant, compiled

from proctor.policies import PolicyError, RunContext

LONG = int(os.environ.get("PROCTOR_LONG") or 0)
"""Sessions in a long run; 0 for the usual number."""
USUAL, SESSIONS = 40, 10
"""Sessions of each family, and how many of them are played under one policy."""

thorough = settings(max_examples=(LONG or USUAL) // SESSIONS, suppress_health_check=list(HealthCheck), deadline=None)
variants = st.sampled_from(["live", "snapshot", "fold"])


def agree(stack: list[Any], variant: Variant, context: RunContext, seed: int) -> Counter[str]:
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

    made = random.Random(seed)
    for _ in range(SESSIONS):
        played = supervised(made, stack)
        if differ(played):
            shortest = smallest(played, differ)
            note(f"session: {shortest}")
            Supervised(stack, policy, variant, context).play(shortest)
    return seen


MET = {"an id again", "an id refused", "an input rewritten", "request_approval", "a late answer", "expired", "denied"}
RARE = {"a start told again", "ran though refused"}


@pytest.mark.parametrize("family", [*FAMILIES, "nets", "stacks"])
def test_supervised_sessions_are_judged_as_their_text_says(family: str) -> None:
    """Ids used again, late and expired approvals, rewritten inputs and resumed sessions agree at every step."""
    asks = {"rules": [], "tool_rules": [{"deny": ["b"], "action": "request_approval"}]}
    some = st.lists(nets(), min_size=1, max_size=2, unique_by=lambda net: str(net["name"]))
    any_rules = st.lists(st.one_of(*FAMILIES.values()), max_size=3)
    one = {
        "nets": policies(st.just([]), all_nets=some),
        "stacks": policies(any_rules, tools=st.lists(tool_rules, max_size=1)),
    }
    made = one[family] if family in one else policies(st.lists(FAMILIES[family], min_size=1, max_size=2))

    @thorough
    @given(made, variants, contexts, st.integers(0, 2**32))
    def judged_alike(policy: Any, variant: Variant, context: RunContext, seed: int) -> None:
        seen.update(agree([policy, {**asks, "name": "q"}], variant, context, seed))

    seen: Counter[str] = Counter()
    judged_alike()

    if path := os.environ.get("PROCTOR_TALLY"):
        with open(path, "a") as tally:
            tally.write(f"{seen['objected'] + seen['agreed']}\t{family}\n")

    assert not LONG or set(seen) >= MET | RARE, seen
