"""The compiled monitor against a naive second reading of the language (tests/reference), on made-up sessions."""

from __future__ import annotations

import os
import random
from collections import Counter
from itertools import chain
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference.agreeing import agree
from reference.directed import session
from reference.generating import FAMILIES, contexts, nets, policies, sessions, tool_rules
from reference.twins import Step, Twins, Variant, compiled

from proctor.policies import PolicyError, RunContext, ToolCall
from proctor.policies.events import ToolCallCompleted

LONG = int(os.environ.get("PROCTOR_LONG") or 0)
"""Sessions of each family in a long run; 0 for the usual number."""
USUAL, SESSIONS = 200, 10
"""Sessions of each family, and how many of them are played under one policy."""

thorough = settings(max_examples=(LONG or USUAL) // SESSIONS, suppress_health_check=list(HealthCheck))
variants = st.sampled_from(["live", "snapshot", "fold"])
randoms = st.integers(0, 2**32)


def alike(stack: list[Any], steps: list[Step], variant: Variant, context: RunContext, seed: int) -> Counter[str]:
    """Play a session on both, and others made for the policy; returns what was seen on the way."""
    made = random.Random(seed)
    played = chain([steps], (session(made, stack) for _ in range(SESSIONS - 1)))
    seen: Counter[str] = agree(stack, lambda policy: Twins(stack, policy, variant, context), played)
    return seen


SHARE = 20 if LONG else 200
"""One proposal in this many, at least, is answered one way and the other; chance has more room in a small lot."""
MET = {"completed", "failed", "in flight", "refused by the provider", "sub-agent", "another run", "allow"}


def check_reach(seen: Counter[str], *, objects: bool = True) -> None:
    """Agreeing where nothing happens proves nothing: both answers came often, and every turn a call can take.

    `objects` is False for a family that refuses no call.
    """
    answers = seen["objected"] + seen["agreed"]

    assert seen["agreed"] > answers / SHARE, seen
    assert seen["objected"] >= objects * answers / SHARE, seen
    assert seen["violated"] > 0, seen
    assert set(seen) >= MET, seen


@pytest.mark.parametrize("family", FAMILIES)
def test_each_family_is_judged_as_its_text_says(family: str) -> None:
    """One or two rules of a family: decisions, violated rules and statuses agree, however the state was come by."""

    @thorough
    @given(policies(st.lists(FAMILIES[family], min_size=1, max_size=2)), sessions, variants, contexts, randoms)
    def judged_alike(policy: Any, steps: list[Step], variant: Variant, context: RunContext, seed: int) -> None:
        seen.update(alike([policy], steps, variant, context, seed))

    seen: Counter[str] = Counter()
    judged_alike()
    check_reach(seen, objects=family != "require")


def test_nets_are_judged_as_their_text_says() -> None:
    """Nets agree with playing the whole session again from the initial marking."""
    some = st.lists(nets(), min_size=1, max_size=2, unique_by=lambda net: str(net["name"]))

    @settings(thorough, max_examples=thorough.max_examples * (1 if LONG else 4))  # few nets move for long
    @given(policies(st.just([]), all_nets=some), sessions, variants, contexts, randoms)
    def judged_alike(policy: Any, steps: list[Step], variant: Variant, context: RunContext, seed: int) -> None:
        seen.update(alike([policy], steps, variant, context, seed))

    seen: Counter[str] = Counter()
    judged_alike()
    check_reach(seen)


any_rule = st.one_of(*FAMILIES.values())
any_policy = policies(
    st.lists(any_rule, max_size=3), tools=st.lists(tool_rules, max_size=2), all_nets=st.lists(nets(), max_size=1)
)


@thorough
@given(st.lists(any_policy, min_size=1, max_size=3), sessions, variants, contexts, randoms)
def test_stacks_of_everything_are_judged_as_their_text_says(
    stack: list[Any], steps: list[Step], variant: Variant, context: RunContext, seed: int
) -> None:
    """Rules of all families in stacks: every objection, its action and its id agree."""
    alike(
        [{**policy, "name": name} for policy, name in zip(stack, "pqr", strict=False)], steps, variant, context, seed
    )


atoms = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 3), st.floats(), st.sampled_from(["", "$", "$.o", "a", "[", "(", "*"])
)
parts = st.lists(atoms, max_size=2) | st.dictionaries(st.sampled_from(["path", "tool", "where", "o"]), atoms)
junk = atoms | parts | st.lists(parts, max_size=2)
fields = ["type", "tool", "tools", "first", "then", "max", "within", "key", "requires", "path", "when", "id", "x"]


@thorough
@given(any_rule, st.dictionaries(st.sampled_from(fields), junk, min_size=1, max_size=2), sessions)
def test_any_document_is_an_error_at_load_or_can_be_judged(
    rule: Any, other: dict[str, Any], steps: list[Step]
) -> None:
    """Rules with fields that are anything at all: every problem is a PolicyError, and what loads raises nothing."""
    try:
        policy = compiled([{"name": "p", "rules": [{**rule, **other}]}])
    except PolicyError:
        return
    monitor = policy.monitor()
    for n, step in enumerate(steps):
        decision = monitor.propose(ToolCall(id=f"c{n}", name=step.tool or "a", input=step.input, turn=n + 1))
        monitor.observe(ToolCallCompleted(tool_call_id=f"c{n}", tool_name=step.tool, tool_output=step.output))

        assert not decision.errors

    policy.restore(monitor.snapshot()).finish()
