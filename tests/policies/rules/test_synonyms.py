"""Rules with two spellings: random sessions have the same decisions, narrowing and reports under both."""

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.directed import ASKS, supervised
from reference.generating import TOOLS
from reference.twins import Twins, compiled

PAIRS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "max_calls and count": (
        {"rules": [{"id": "r", "type": "max_calls", "tool": ["a", "b"], "max": 2}]},
        {"rules": [{"id": "r", "type": "count", "tool": ["a", "b"], "max": 2}]},
    ),
    "max_calls and count, for each value": (
        {"rules": [{"id": "r", "type": "max_calls", "tool": "[ab]", "max": 1, "key": "$.o"}]},
        {"rules": [{"id": "r", "type": "count", "tool": "[ab]", "max": 1, "key": "$.o"}]},
    ),
    "require and count with min": (
        {"rules": [{"id": "r", "type": "require", "tool": ["a", "D.x"]}]},
        {"rules": [{"id": "r", "type": "count", "tool": ["a", "D.x"], "min": 1}]},
    ),
    "never_after and forbidden_sequence": (
        {"rules": [{"id": "r", "type": "never_after", "trigger": "a", "forbidden": ["b", "c"]}]},
        {"rules": [{"id": "r", "type": "forbidden_sequence", "sequence": ["a", ["b", "c"]], "adjacency": "any"}]},
    ),
    "never_after and forbidden_sequence, for each value": (
        {"rules": [{"id": "r", "type": "never_after", "trigger": "a", "forbidden": "[bc]", "key": "$.o"}]},
        {
            "rules": [
                {"id": "r", "type": "forbidden_sequence", "sequence": ["a", "[bc]"], "adjacency": "any", "key": "$.o"}
            ]
        },
    ),
    "blocklist and deny": (
        {"rules": [{"id": "r", "type": "blocklist", "tools": ["a", "d.*"]}]},
        {"tool_rules": [{"id": "r", "deny": ["a", "d.*"]}]},
    ),
    "allowlist and allow": (
        {"rules": [{"id": "r", "type": "allowlist", "tools": ["a", "b"]}]},
        {"tool_rules": [{"id": "r", "allow": ["a", "b"]}]},
    ),
    "count and a line of a net": (
        {"rules": [{"id": "limit a to 2 per session", "type": "count", "tool": "a", "max": 2}]},
        {"nets": ["limit a to 2 per session"]},
    ),
}
"""Two spellings of one rule. The reference implements the first."""


@pytest.mark.parametrize("pair", PAIRS)
@settings(max_examples=60)
@given(st.integers(0, 2**32), st.booleans())
def test_both_spellings_of_a_rule_decide_and_report_alike(pair: str, number: int, asks: bool) -> None:
    """The reference of the first spelling agrees with the monitor of the second at every step and at the end."""
    one, other = ([{"name": "p", **policy}, *([ASKS] if asks else [])] for policy in PAIRS[pair])
    both = Twins(one, compiled(other))
    both.play(supervised(Random(number), one))

    first, second = compiled(one).monitor(), compiled(other).monitor()
    for event in both.record:
        first.observe(event)
        second.observe(event)

        assert first.narrow(TOOLS) == second.narrow(TOOLS)
