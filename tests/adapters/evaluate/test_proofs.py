"""The time that several questions to `verify` share."""

from __future__ import annotations

from typing import Any

from proctor.adapters.evaluate.proofs import SharedTime
from proctor.policies import Policy, parse_policies

TOOLS = "abcde"


def policy(*rules: dict[str, Any]) -> Policy:
    """A policy that denies what its rules refuse."""
    [made] = parse_policies({"name": "p", "on_violation": "deny", "rules": list(rules)})
    return made


HARD = {
    "stack": policy(*({"type": "count", "tool": tool, "max": 40} for tool in TOOLS)),
    "keeps": policy({"type": "count", "tool": list(TOOLS), "max": 200}),
}
"""A sum that five counts keep together: they have millions of states."""
EASY = {"stack": policy(), "keeps": policy()}


def test_a_question_for_which_the_time_was_too_short_says_that_it_was_shared() -> None:
    """With two others; what is quick is answered all the same."""
    shared = SharedTime(3, seconds=0)

    assert shared.answer(**HARD).reason.endswith("; 3 questions shared 0 seconds, so ask it alone")
    assert shared.answer(**EASY).verdict == "proved"
    assert shared.number == 2


def test_a_question_alone_shares_nothing() -> None:
    """It has all the time that there is."""
    answer = SharedTime(1, seconds=0).answer(**HARD)

    assert answer.verdict == "unknown"
    assert "shared" not in answer.reason


def test_each_question_has_an_even_part_and_what_is_left_goes_to_the_others() -> None:
    """Two hard questions among twenty easy ones end in time, and neither takes the part of the other."""
    looks: list[int] = []

    def note() -> bool:
        looks.append(shared.number)
        return False

    shared = SharedTime(22, note, seconds=2)

    for _ in range(20):
        assert shared.answer(**EASY).verdict == "proved"
    assert shared.answer(**HARD).verdict == shared.answer(**HARD).verdict == "unknown"
    assert {21, 22} <= set(looks)


def test_whoever_stops_the_search_stops_all_questions() -> None:
    """As Ctrl-C does; the time is not to blame."""
    answer = SharedTime(2, lambda: True).answer(**HARD)

    assert answer.verdict == "unknown"
    assert "shared" not in answer.reason
