"""A policy is checked once: what was found sound is not looked at again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from proctor.policies import Policy, PolicyError, compile_policy, merge_policies, parse_policies, preflight
from proctor.policies.diagram import draw
from proctor.policies.rules.response import Require
from proctor.policies.values.model_base import Issue


class Counted(Require, tag="require", frozen=True):
    """A rule that counts how often it is checked."""

    def problems(self) -> Iterator[Issue]:
        """Count, and complain of nothing."""
        checks.append(1)
        yield from super().problems()


checks: list[int] = []


@pytest.fixture(autouse=True)
def _from_nothing() -> None:
    checks.clear()


def test_a_stack_is_checked_by_none_of_those_it_is_handed_to() -> None:
    """Merging checks each member; preflight, drawing and compiling read what is known to be sound."""
    stack = merge_policies([Policy(name="a", rules=[Counted(tool="x")]), Policy(name="b")])
    preflight(stack)
    draw(stack)
    compile_policy(stack)

    assert len(checks) == 1


def test_what_was_read_is_sound() -> None:
    """The reader has checked it, and what it gives is not taken apart again."""
    (policy,) = parse_policies({"name": "a", "rules": [Counted(tool="x")]})
    compile_policy(merge_policies([policy]))

    assert len(checks) == 1


@pytest.mark.parametrize("changed", [{"name": ""}, {"prices": {"m": 3}}, {"rules": [{"type": "require"}]}])
def test_a_copy_with_a_change_is_checked(changed: dict[str, Any]) -> None:
    """Soundness is of the very record, not of what was made from it."""
    sound = parse_policies({"name": "a"})[0]
    with pytest.raises(PolicyError):
        compile_policy(msgspec.structs.replace(sound, **changed))


def test_a_policy_found_wrong_is_wrong_the_second_time() -> None:
    """Only what is sound is remembered."""
    wrong = Policy(name="")
    for _ in range(2):
        with pytest.raises(PolicyError):
            merge_policies([wrong])
