"""Limits against adding everything up again (tests/reference/limits.py)."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from reference.limits import ORDER, Moment, refusals, reports
from reference.stacks import strictest

from proctor.policies import Monitor, ToolCall, compile_policy, merge_policies, parse_policies
from proctor.policies import events as ev

LONG = int(os.environ.get("PROCTOR_LONG") or 0)

limit = st.fixed_dictionaries({"max": st.integers(0, 6), "action": st.sampled_from(["warn", "deny", "cancel"])})
limits = st.fixed_dictionaries({}, optional=dict.fromkeys(ORDER, limit))
reported = st.tuples(st.integers(0, 4), st.integers(0, 3), st.sampled_from(["", "", "e", "f"])).map(
    lambda told: Moment(scope="any", input=told[0], output=told[1], id=told[2])
)
asked = st.integers(0, 1).map(lambda later: Moment(turn=later))
"""`turn` is how many responses it is later than the one before."""


@settings(max_examples=LONG or 200, deadline=None)
@given(limits, st.sampled_from(["delta", "cumulative"]), st.lists(reported | asked, max_size=10), st.booleans())
def test_limits_are_judged_as_their_text_says(limits: Any, scope: str, moments: list[Moment], restored: bool) -> None:
    """Reports, refusals and their actions agree at every moment, live and restored."""
    policy = compile_policy(merge_policies(parse_policies({"version": 1, "name": "p", "limits": limits})))
    monitor, past, turn = policy.monitor(), list[Moment](), 1
    for n, moment in enumerate(moments):
        turn += moment.turn
        past.append(
            _told(monitor, limits, past, moment, scope) if moment.scope else _asked(monitor, limits, past, turn, n)
        )
        if restored:
            monitor = policy.restore(monitor.snapshot())


def _told(monitor: Monitor, limits: Any, past: list[Moment], moment: Moment, scope: Any) -> Moment:
    moment = moment._replace(scope=scope)
    event = ev.TokenUsageUpdated(
        scope=scope, input_tokens=moment.input, output_tokens=moment.output, event_id=moment.id
    )
    found = tuple(violation.rule for violation in monitor.observe(event))

    assert found == tuple(reports(limits, [*past, moment]))

    return moment._replace(reported=found)


def _asked(monitor: Monitor, limits: Any, past: list[Moment], turn: int, n: int) -> Moment:
    decision = monitor.propose(ToolCall(id=f"c{n}", name="x", turn=turn))
    expected = refusals(limits, past, turn)

    assert sorted((v.rule, v.action) for v in decision.violations) == sorted(expected)
    assert decision.action == strictest([action for _, action in expected])

    refused = decision.action in ("deny", "cancel")
    common: dict[str, Any] = {"tool_call_id": f"c{n}", "tool_name": "x"}
    event = ev.ToolCallDenied(**common, decision="deny") if refused else ev.ToolCallStarted(**common, turn=turn)

    assert monitor.observe(event) == []

    return Moment(turn=turn, started=not refused, reported=tuple(name for name, _ in expected))
