"""`verify` against brute force on the monitor: a small part of the long run `proofs`."""

from __future__ import annotations

import random

import pytest

from tests.fuzz.broken_policies import told_apart, variants
from tests.fuzz.proof_pairs import pair
from tests.fuzz.proofs import compared


@pytest.mark.parametrize("seeds", [range(n, n + 8) for n in range(0, 32, 8)], ids=str)
def test_generated_questions_are_answered_as_force_answers_them(seeds: range) -> None:
    """Nothing proved has a session against it, nothing refuted a shorter one, and little is unknown."""
    answers = []
    for seed in seeds:
        rng = random.Random(seed)
        answers.append(compared(pair(rng), rng, depth=3)[0].verdict)
    assert answers.count("unknown") <= 1


@pytest.mark.parametrize("name", ["no-push", "org", "known-accounts"])
def test_a_broken_policy_is_told_from_its_original(name: str) -> None:
    """Each variant of a few policies; `policies` is the long run over all."""
    answers = {variant.way: told_apart(variant) for variant in variants() if variant.policy == name}
    assert set(answers.values()) <= {"refuted", "no policy"}, answers
