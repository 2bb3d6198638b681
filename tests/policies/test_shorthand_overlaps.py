"""A line of shorthand both of whose sides one call may be is refused: it would be let through as the other side."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.policies import PolicyError, compile_policy, parse_policies
from proctor.policies.values.globs import glob_regex, overlap

OVERLAPPING = [
    *("require * before deploy", "require deploy before deploy", "require DEPLOY before deploy"),
    *("require deploy* before *_prod", "require [a-d]eploy before deploy", "limit push to 3 per push"),
    *("limit * to 3 per test", "require Release before deploy", "limit Release to 1 per ship"),
]
APART = [
    *("require backup before delete", "require mcp__a__* before mcp__b__*", "require human-approval before *"),
    *("limit * to 3 per session", "block *", "require Release before push"),
]


def document(line: Any) -> dict[str, Any]:
    return {"name": "p", "aliases": {"Release": ["deploy", "ship"]}, "nets": [line]}


@pytest.mark.parametrize("line", OVERLAPPING)
def test_a_line_whose_sides_overlap_is_an_error_at_load(line: str) -> None:
    """By its own name, by a glob, or by an alias of the policy."""
    for written in (line, {"line": line, "action": "deny"}):
        with pytest.raises(PolicyError, match="both") as raised:
            parse_policies(document(written))

        assert len(raised.value.problems) == 1


@pytest.mark.parametrize("line", APART)
def test_a_line_whose_sides_are_apart_loads(line: str) -> None:
    """It means what it says."""
    assert parse_policies(document(line))


def test_a_line_added_to_a_live_session_is_held_to_the_same() -> None:
    """`add_net` raises and the session goes on as it was."""
    monitor = compile_policy(parse_policies({"name": "p"})[0]).monitor()
    with pytest.raises(ValueError, match="both"):
        monitor.add_net("require * before deploy")


patterns = st.text("ab?*", min_size=1, max_size=4)


@given(patterns, patterns)
def test_two_patterns_overlap_where_some_name_matches_both(left: str, right: str) -> None:
    """Compared with every name long enough to tell."""
    names = [""]
    for _ in range(6):
        names += [name + char for name in names for char in "ab" if len(name) < 6]
    both = any(glob_regex(left).found_in(name) and glob_regex(right).found_in(name) for name in set(names))

    assert overlap(left, right) == both
