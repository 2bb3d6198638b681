"""Requirements of a precondition: what of them others ask about."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.policies import parse_policies
from proctor.policies.rules.precondition import Precondition

A, B = {"prior": "a", "must": "started"}, {"prior": "b", "must": "completed"}


@pytest.mark.parametrize(
    ("required", "weakest"),
    [(A, "started"), (B, "completed"), ({"any_of": [A, B]}, "started"), ({"any_of": [B, B]}, "completed")],
    ids=["started", "completed", "either", "both completed"],
)
def test_the_weakest_way_to_meet_a_requirement_counts(required: dict[str, Any], weakest: str) -> None:
    """A call that only started may meet one that says so, whatever the others ask for."""
    policy = {"name": "p", "rules": [{"type": "precondition", "tool": "x", "requires": [required]}]}
    (rule,) = parse_policies(policy)[0].rules
    assert isinstance(rule, Precondition)

    assert rule.requires[0].weakest == weakest
