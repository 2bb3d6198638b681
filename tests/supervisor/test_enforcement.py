"""What follows from a violation of something that has already happened."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.policies import Policy, compile_policy
from proctor.policies.errors import Violation
from proctor.policies.events import ToolCallDenied, ToolCallRequested
from proctor.policies.limits import LIMITS
from proctor.policies.monitor.call_table import DENIED_KEPT
from proctor.supervisor.machine.event_factory import reach


@pytest.mark.parametrize(
    ("action", "unpreventable", "kind", "holds", "loose"),
    [
        ("cancel", None, "deny", "cancel", "cancel"),
        ("cancel", "warn", "deny", "cancel", "cancel"),
        ("request_approval", None, "deny", "signal", "signal"),
        ("warn", None, "deny", "record", "record"),
        ("deny", None, "deny", "escalate", "escalate"),
        ("deny", "cancel", "deny", "escalate", "escalate"),
        ("deny", "warn", "deny", "record", "record"),
        ("deny", None, "circuit_breaker", "record", "escalate"),
        *(("deny", None, limit, "record", "escalate") for limit in sorted(LIMITS)),
    ],
)
def test_a_violation_found_late_reaches_as_far_as_it_can(
    action: Any, unpreventable: Any, kind: str, holds: str, loose: str
) -> None:
    """A deny ends the run, unless it is wished otherwise, or the gate refuses whatever comes later anyway."""
    named: dict[str, Any] = {"policy": "p", "stack": "p", "rule": "r", "enforcement": "observed"}
    found = Violation(**named, kind=kind, action=action, unpreventable=unpreventable)

    assert (reach(found, gates_all=True), reach(found, gates_all=False)) == (holds, loose)


def test_only_the_latest_refused_calls_are_remembered() -> None:
    """One that is asked for again is not refused any more."""
    monitor = compile_policy(Policy(name="p")).monitor()
    ids = [f"c{n}" for n in range(DENIED_KEPT)]
    for id in [*ids, "one more"]:
        monitor.observe(ToolCallRequested(tool_call_id=id, tool_name="read", tool_input={}))
        monitor.observe(ToolCallDenied(tool_call_id=id, tool_name="read"))
    monitor.observe(ToolCallRequested(tool_call_id="c5", tool_name="read", tool_input={}))

    assert [*monitor.calls.session.denied] == [*(id for id in ids if id not in ("c0", "c5")), "one more"]
