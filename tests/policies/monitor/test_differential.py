"""The compiled monitor against a naive reference implementation (tests/reference), on generated sessions."""

import os
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference.agreeing import KINDS, SESSIONS, compare_sessions
from reference.directed import ASKS, session, supervised
from reference.generating import any_rule, sessions
from reference.twins import Step, compiled

from proctor.policies import PolicyError, ToolCall
from proctor.policies.events import ToolCallCompleted

LONG = int(os.environ.get("PROCTOR_LONG") or 0)
"""Sessions of each family in a long run; 0 for the default number."""
USUAL = 200
"""Sessions of each family."""

thorough = settings(max_examples=(LONG or USUAL) // SESSIONS, suppress_health_check=list(HealthCheck))
few = settings(thorough, max_examples=4, deadline=None)

SHARE = 20 if LONG else 200
"""At least one proposal in this many must be allowed, and one denied. Small samples vary more."""
MET = {"completed", "failed", "in flight", "refused by the provider", "subagent", "another run", "allow"}


def check_reach(seen: Counter[str], *, objects: bool = True) -> None:
    """Both decisions and every order of a call's events occurred often enough; agreement on nothing proves nothing.

    `objects` is False for a family that denies no call.
    """
    answers = seen["objected"] + seen["agreed"]

    assert seen["agreed"] > answers / SHARE, seen
    assert seen["objected"] >= objects * answers / SHARE, seen
    assert seen["violated"] > 0, seen
    assert set(seen) >= MET, seen


@pytest.mark.parametrize("kind", KINDS)
def test_each_family_is_evaluated_as_specified(kind: str) -> None:
    """Decisions, actions, violated rules and statuses agree: live, restored and rebuilt."""
    more = 4 if kind == "nets" and not LONG else 1  # few nets move for long
    seen = compare_sessions(kind, settings(thorough, max_examples=more * thorough.max_examples), session)
    check_reach(seen, objects=kind != "require")


@pytest.mark.parametrize("kind", KINDS)
def test_supervised_sessions_are_evaluated_as_specified(kind: str) -> None:
    """Reused ids, late and expired approvals, rewritten inputs and resumed sessions agree at every step.

    A longer run is `python -m tests.fuzz sessions`.
    """
    compare_sessions(kind, few, supervised, also=[ASKS])


atoms = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 3), st.floats(), st.sampled_from(["", "$", "$.o", "a", "[", "(", "*"])
)
parts = st.lists(atoms, max_size=2) | st.dictionaries(st.sampled_from(["path", "tool", "where", "o"]), atoms)
junk = atoms | parts | st.lists(parts, max_size=2)
fields = ["type", "tool", "tools", "first", "then", "max", "within", "key", "requires", "path", "when", "id", "x"]


@thorough
@given(any_rule, st.dictionaries(st.sampled_from(fields), junk, min_size=1, max_size=2), sessions)
def test_any_document_is_an_error_at_load_or_can_be_evaluated(
    rule: Any, other: dict[str, Any], steps: list[Step]
) -> None:
    """Any field may have any value. Every problem is a PolicyError, and a policy that loads raises nothing."""
    try:
        policy = compiled([{"name": "p", "rules": [{**rule, **other}]}])
    except PolicyError:
        return
    monitor = policy.monitor()
    for n, step in enumerate(steps):
        decision = monitor.propose(ToolCall(id=f"c{n}", name=step.tool or "a", input=step.input, turn=n + 1))
        monitor.observe(ToolCallCompleted(tool_call_id=f"c{n}", tool_name=step.tool, tool_output=step.output))

        assert not decision.errors

    policy.restore(monitor.snapshot()).finish()
