"""`verify` against brute force on the monitor: a small part of the long run `proofs`."""

from __future__ import annotations

import os
import random

import pytest

from proctor.policies.stack.clauses import clauses_of
from tests.fuzz.broken_policies import told_apart, variants
from tests.fuzz.proof_pairs import pair
from tests.fuzz.proofs import compared, sanity_compared

LONG = int(os.environ.get("PROCTOR_LONG") or 0)
"""How many stacks are looked at by themselves; some small ones if not given."""


@pytest.mark.parametrize("seeds", [range(n, n + 8) for n in range(0, 32, 8)], ids=str)
def test_generated_questions_are_answered_as_force_answers_them(seeds: range) -> None:
    """Nothing proved has a session against it, nothing refuted a shorter one, and little is unknown."""
    answers = []
    for seed in seeds:
        rng = random.Random(seed)
        answers.append(compared(pair(rng), rng, depth=3)[0].verdict)
    assert answers.count("unknown") <= 1


def test_what_is_found_of_a_stack_by_itself_holds_by_force() -> None:
    """Rules that others make dead, that come to nothing or always deny, and tools that cannot be called."""
    findings: set[str] = set()
    for seed in range(LONG) or range(6, 46):
        rng = random.Random(f"alone {seed}")
        question = pair(rng)
        if LONG or 2 <= len(list(clauses_of(question.stack))) <= 3:
            findings.update(sanity_compared(question, rng, depth=2))
    assert (
        {"never callable", "subsumed", "vacuous"}
        <= findings
        <= {"cannot finish", "dead", "never callable", "subsumed", "vacuous"}
    )


@pytest.mark.parametrize("name", ["no-push", "org", "known-accounts"])
def test_a_broken_policy_is_told_from_its_original(name: str) -> None:
    """Each variant of a few policies; `policies` is the long run over all."""
    answers = {variant.way: told_apart(variant) for variant in variants() if variant.policy == name}
    assert set(answers.values()) <= {"refuted", "no policy"}, answers
