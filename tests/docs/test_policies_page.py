"""Every policy on the policies page loads, merges and starts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from proctor.policies import compile_policy, merge_policies, parse_policies, preflight
from proctor.policies.rules import RULES

PAGE = (Path(__file__).parents[2] / "docs" / "policies.md").read_text()
POLICIES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("text", POLICIES, ids=lambda text: text.split("name: ")[1].split("\n")[0])
def test_a_policy_of_the_page_can_be_used(text: str) -> None:
    """Read, merged, checked, compiled."""
    stack = merge_policies(parse_policies(text))
    preflight(stack).check()

    assert compile_policy(stack).rules or dict(stack.limits.given())


def test_the_page_has_every_family() -> None:
    """A family that is not in the table is not documented."""
    missing = [name for name in RULES if f"`{name}`" not in PAGE and name != "max_calls"]

    assert missing == []
