"""`verify` against brute force on the monitor: a small part of the long run `proofs`."""

from __future__ import annotations

import random

import pytest

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
