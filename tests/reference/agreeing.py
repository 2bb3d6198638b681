"""Sessions under generated policies, run on the monitor and on the reference, until the two differ."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from hypothesis import given, note, seed, settings
from hypothesis import strategies as st

from proctor.policies import CompiledPolicy, PolicyError, RunContext

from .directed import smallest
from .generating import FAMILIES, contexts, nets, policies, stacks
from .twins import Step, Twins, Variant, compiled

KINDS: Final = (*FAMILIES, "nets", "stacks")
SESSIONS: Final = 10
"""Sessions run under one policy."""
Made: TypeAlias = Callable[[random.Random, Sequence[Any]], list[Step]]


def compare_sessions(
    kind: str, thorough: settings, made: Made, *, also: Sequence[Any] = (), seeded: int | None = None
) -> Counter[str]:
    """Run sessions, generated for stacks of one kind with other policies, on both; returns what was covered.

    Raises AssertionError if the two differ, with the smallest policy and session as notes.
    """
    seen: Counter[str] = Counter()

    @thorough
    @given(_stacks(kind), st.sampled_from(["live", "snapshot", "fold"]), contexts, st.integers(0, 2**32))
    def alike(stack: list[Any], variant: Variant, context: RunContext, number: int) -> None:
        source = random.Random(number)
        seen.update(_agree([*stack, *also], variant, context, lambda whole: made(source, whole)))

    played: Callable[[], None] = alike if seeded is None else seed(seeded)(alike)
    played()
    return seen


def _agree(
    stack: list[Any], variant: Variant, context: RunContext, made: Callable[[list[Any]], list[Step]]
) -> Counter[str]:
    """A stack that does not load is skipped."""
    seen: Counter[str] = Counter()
    try:
        policy: CompiledPolicy = compiled(stack)
    except PolicyError:
        return seen

    def differ(steps: list[Step]) -> bool:
        both = Twins(stack, policy, variant, context)
        try:
            both.play(steps)
        except AssertionError:
            return True
        seen.update(both.seen)
        return False

    for _ in range(SESSIONS):
        steps = made(stack)
        if differ(steps):
            shortest = smallest(steps, differ)
            note(f"session: {shortest}")
            Twins(stack, policy, variant, context).play(shortest)
    return seen


def _stacks(kind: str) -> Any:
    if kind == "nets":
        some = st.lists(nets(), min_size=1, max_size=2, unique_by=lambda net: str(net["name"]))
        return st.tuples(policies(st.just([]), all_nets=some))
    if kind in FAMILIES:
        return st.tuples(policies(st.lists(FAMILIES[kind], min_size=1, max_size=2)))
    return stacks
