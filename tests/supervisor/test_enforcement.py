"""What follows from a violation of something that has already happened."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.policies.errors import Violation
from proctor.supervisor.machine.call_table import REFUSED_KEPT, OpenCalls
from proctor.supervisor.machine.event_factory import LIMITS, reach


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
    """An id that is refused again is a late one; one that is asked for again is not refused any more."""
    calls = OpenCalls()
    for n in range(REFUSED_KEPT):
        calls.refuse(f"c{n}")
    calls.refuse("c0")
    calls.refuse("one more")
    calls.put("c5", "read", {}, "waiting")

    refused = [n for n in range(REFUSED_KEPT) if calls.was_refused(f"c{n}")]
    assert refused == [n for n in range(REFUSED_KEPT) if n not in (1, 5)]
    assert calls.was_refused("one more")
