"""A session that goes on after its run: what the end settled is open again, and what was broken stays broken."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from proctor.policies import (
    Event,
    Monitor,
    ToolCall,
    compile_policy,
    decode_event,
    encode_event,
    merge_policies,
    parse_policies,
)
from proctor.policies import events as ev
from proctor.supervisor.machine.event_factory import violated


def stack_of(*documents: dict[str, Any]) -> Any:
    return compile_policy(merge_policies([p for d in documents for p in parse_policies({"name": "p", **d})]))


class Recorded:
    """A monitor and its record, settled at the end of each run as a supervisor does."""

    def __init__(self, compiled: Any) -> None:
        self.compiled = compiled
        self.monitor: Monitor = compiled.monitor()
        self.record: list[bytes] = []

    def tell(self, event: Event) -> None:
        self.record.append(encode_event(event))
        for violation in self.monitor.observe(event):
            self.tell(violated(violation))

    def run(self, id: str, *tools: str, over: Any = ev.RunCompleted) -> dict[str, str]:
        self.tell(ev.RunStarted(run_id=id))
        for n, tool in enumerate(tools):
            self.tell(ev.ToolCallStarted(tool_call_id=f"c{n}", tool_name=tool))
            self.tell(ev.ToolCallCompleted(tool_call_id=f"c{n}", tool_name=tool))
        self.monitor.observe(over(run_id=id))
        for violation in self.monitor.finish().violations:
            self.tell(violated(violation))
        self.record.append(encode_event(over(run_id=id)))
        return self.statuses(self.monitor)

    def statuses(self, monitor: Monitor) -> dict[str, str]:
        return {id: rule.status for id, rule in monitor.finish().rules.items()}

    def folded(self, compiled: Any = None) -> Monitor:
        monitor: Monitor = (compiled or self.compiled).monitor()
        for line in self.record:
            monitor.observe(decode_event(line))
        return monitor


OWED: dict[str, tuple[dict[str, Any], list[str], list[str]]] = {
    "require": ({"type": "require", "tool": "x"}, [], ["x"]),
    "count": ({"type": "count", "tool": "x", "min": 2}, ["x"], ["x"]),
    "count with a maximum": ({"type": "count", "tool": "x", "exact": 2}, ["x"], ["x"]),
    "count per key": ({"type": "count", "tool": "x", "min": 2, "key": "$.o"}, ["x"], ["x"]),
    "after": ({"type": "after", "trigger": "x", "then": "y"}, ["x"], ["y"]),
    "eventually": ({"type": "eventually", "tool": "y", "within": 2}, ["x"], ["y"]),
    "sequence": ({"type": "sequence", "tools": ["x", "y"]}, ["x"], ["y"]),
}


@pytest.mark.parametrize(("rule", "first", "then"), OWED.values(), ids=OWED)
@pytest.mark.parametrize("action", ["warn", "deny"])
def test_what_the_end_of_a_run_settled_is_open_again_when_the_session_continues(
    rule: dict[str, Any], first: list[str], then: list[str], action: str
) -> None:
    """Owed at the end of the first run and done in the second: violated, then held, live and on the record."""
    session = Recorded(stack_of({"rules": [{**rule, "id": "r", "action": action}]}))
    ended = session.run("r1", *first)
    folded = session.statuses(session.folded())

    assert (ended, folded) == ({"r": "violated"}, {"r": "violated"})

    again = session.run("r2", *then)

    assert (again, session.statuses(session.folded())) == ({"r": "held"}, {"r": "held"})


def test_what_a_call_violated_stays_violated_when_the_session_continues() -> None:
    """A sequence begun at its end is violated by that call, and completing it later undoes nothing."""
    session = Recorded(stack_of({"rules": [{"type": "sequence", "id": "r", "tools": ["x", "y"], "action": "warn"}]}))
    session.run("r1", "y", "x")
    again = session.run("r2", "y")

    assert (again, session.statuses(session.folded())) == ({"r": "violated"}, {"r": "violated"})


def test_a_run_that_was_cancelled_leaves_what_is_owed_pending() -> None:
    """Nothing was settled, so there is nothing to open again."""
    session = Recorded(stack_of({"rules": [{"type": "require", "id": "r", "tool": "x"}]}))

    assert session.run("r1", over=ev.RunCancelled) == {"r": "pending"}
    assert session.run("r2", "x") == {"r": "held"}


def test_a_recorded_violation_counts_for_the_rule_of_its_own_policy_only() -> None:
    """Another policy's rule of the same id broke nothing."""
    no = {"type": "blocklist", "id": "no", "tools": ["x"], "action": "warn"}
    session = Recorded(stack_of({"rules": [no]}))
    session.run("r1", "x")
    other = session.folded(stack_of({"name": "q", "rules": [{**no, "tools": ["z"]}]}))
    both = session.folded(stack_of({"rules": [no]}, {"name": "q", "rules": [{**no, "tools": ["z"]}]}))

    assert session.statuses(other) == {"no": "held"}
    assert session.statuses(both) == {"p/no": "violated", "q/no": "held"}


def test_a_violation_recorded_under_a_stack_counts_where_its_policy_stands_alone() -> None:
    """The id began with the policy's name there."""
    no = {"type": "blocklist", "id": "no", "tools": ["x"], "action": "warn"}
    session = Recorded(stack_of({"rules": [no]}, {"name": "q", "rules": [{**no, "tools": ["z"]}]}))
    session.run("r1", "x")

    assert session.statuses(session.folded(stack_of({"rules": [no]}))) == {"no": "violated"}


@pytest.mark.parametrize("scope", ["run", "session"])
def test_a_run_has_its_own_time_in_a_session_recorded_ahead_of_the_clock(scope: str) -> None:
    """Another machine's clock was five hours ahead: neither its duration nor its idleness counts from then."""
    hours, start = 5 * 3600_000, 1_700_000_000_000
    limits = {"max_duration_ms": {"max": 60_000, "scope": scope}, "max_idle_ms": 20_000}
    monitor = stack_of({"limits": limits}).monitor()
    violations: list[Any] = []
    for event, ms in (
        (ev.RunStarted(run_id="a"), start + hours),
        (ev.MessageReceived(content="x"), start + hours + 10_000),
        (ev.RunCompleted(run_id="a"), start + hours + 10_000),
        (ev.SessionResumed(run_id="b"), start),
        (ev.RunStarted(run_id="b"), start),
        (ev.MessageReceived(content="y"), start + 15_000),
    ):
        violations += monitor.observe(msgspec.structs.replace(event, at=datetime.fromtimestamp(ms / 1000, UTC)))
    due = {limit.limit: limit.used for limit in monitor.limits()}

    assert violations == []
    assert due == {"max_duration_ms": 15_000 + (10_000 if scope == "session" else 0), "max_idle_ms": 15_000}
    assert monitor.deadline() == start + 35_001


def test_an_event_of_no_turn_says_nothing_of_how_a_run_numbers_its_turns() -> None:
    """A client that goes on with its session's numbers is not counted from one again."""
    limits = {"max_turns": {"max": 5, "scope": "session", "action": "deny"}}
    monitor = compile_policy(parse_policies({"name": "p", "limits": limits})[0]).monitor()
    monitor.observe(ev.RunStarted(run_id="r1"))
    for turn in (1, 2, 3):
        monitor.observe(ev.TurnStarted(turn=turn))
    monitor.observe(ev.RunCompleted(run_id="r1"))
    monitor.observe(ev.RunStarted(run_id="r2"))
    monitor.observe(ev.ToolCallRequested(tool_call_id="a", tool_name="x"))
    monitor.observe(ev.TurnStarted(turn=4))

    assert monitor.propose(ToolCall(id="b", name="x", turn=4)).action == "allow"
    monitor.observe(ev.TurnStarted(turn=6))
    assert monitor.propose(ToolCall(id="c", name="x", turn=6)).action == "deny"
