"""The monitor against the reference, on every session of up to five calls over three tools, for every
ordering rule.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from reference.twins import Step, Twins, compiled

TOOLS = "abc"
LONGEST = 5
PAIRS = [("a", "b"), ("a", "a"), (["a", "b"], "b"), ("a", "*"), ("*", "a")]
MEMBERS: list[list[Any]] = [["a"], ["a", "b"], ["a", "a"], ["a", "b", "c"], ["a", "b", "a"], ["a", "a", "b"]]
MEMBERS += [[["a", "b"], "c"], ["*", "b"]]


def order_rules() -> Iterator[dict[str, Any]]:
    """Ordering rules over three tools, including overlapping ones."""
    for left, right in PAIRS:
        yield {"type": "before", "first": left, "then": right}
        yield {"type": "immediately_before", "first": left, "then": right}
        yield {"type": "never_after", "trigger": left, "forbidden": right}
        for within in (1, 2, 3):
            yield {"type": "after", "trigger": left, "then": right, "within": within}
    for within in (1, 3, 5):
        yield {"type": "eventually", "tool": "a", "within": within}
    for members in MEMBERS:
        yield {"type": "sequence", "tools": members}
        yield {"type": "sequence", "tools": members, "strict": True}
        yield {"type": "forbidden_sequence", "sequence": members}
        yield {"type": "forbidden_sequence", "sequence": members, "adjacency": "any"}


RULES = list(order_rules())


@pytest.mark.parametrize("action", ["deny", "warn"])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: "-".join(str(value) for value in rule.values()))
def test_an_ordering_rule_is_evaluated_as_specified_on_every_short_session(rule: dict[str, Any], action: str) -> None:
    """Decisions and statuses agree on every session, with denied calls and, for up to four calls, with
    warnings only.
    """
    stack = [{"name": "p", "rules": [{**rule, "action": action}]}]
    policy = compiled(stack)
    Twins(stack, policy).play([])
    settled: set[tuple[str, ...]] = set()
    for tools in itertools.product(TOOLS, repeat=LONGEST if action == "deny" else LONGEST - 1):
        twins = Twins(stack, policy)
        for length, tool in enumerate(tools, 1):
            twins.take(Step(do="ask", tool=tool))
            if tools[:length] not in settled:
                settled.add(tools[:length])
                twins.settle()
