"""The call table: a call counts once, its record is bounded, and a call survives the run's end."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from proctor.policies import Decision, Monitor, ToolCall, compile_policy, parse_policies
from proctor.policies import events as ev
from proctor.policies.events.calls import MARK_LENGTH, mark
from proctor.policies.monitor.program import PLANS_KEPT
from proctor.policies.monitor.state import PLANS_BOUND


@pytest.mark.parametrize("scope", ["run", "session"])
def test_a_run_has_its_own_clock_in_a_session_recorded_ahead_of_it(drive: Any, scope: str) -> None:
    """An earlier run was recorded by a clock five hours ahead. Neither duration nor idle time counts from there."""
    hours, start = 5 * 3600_000, 1_700_000_000_000
    limits = {"max_duration_ms": {"max": 60_000, "scope": scope}, "max_idle_ms": 20_000}
    monitor = drive({"limits": limits}).monitor
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


@pytest.mark.parametrize("text", ["short", "x" * 10 * MARK_LENGTH])
def test_a_finished_call_is_recognised_whatever_the_order_of_its_keys(ruled: Any, text: str) -> None:
    """A repeated start counts no further. Another input with the same id is a new call."""
    session = ruled({"type": "count", "tool": "x", "max": 1})
    session.ok("x", id="c", text=text, line=1)
    again = session.saw("x", id="c", line=1, text=text)
    other = session.monitor.propose(ToolCall(id="c", name="x", input={"line": 2, "text": text}))

    assert (again, [v.rule for v in other.violations]) == ([], ["count-1"])


@pytest.mark.parametrize("length", [1, *range(MARK_LENGTH - 60, MARK_LENGTH + 20, 3), 10 * MARK_LENGTH])
def test_a_finished_call_is_recognised_whatever_the_form_of_its_numbers(ruled: Any, length: int) -> None:
    """7.0 equals 7 and not 8, whether the input is stored whole or as a digest."""
    for first, then in [(7.0, 7), (7, 7.0), (1e20, 10**20), (10**20, 1e20)]:
        session = ruled({"type": "count", "tool": "x", "max": 1})
        session.ok("x", id="c", text="x" * length, deep=[{"line": first}])
        again = session.saw("x", id="c", text="x" * length, deep=[{"line": then}])
        other = session.saw("x", id="c", text="x" * length, deep=[{"line": then + 100_000}])

        assert (again, len(other)) == ([], 1)


def test_the_record_of_a_finished_call_does_not_grow_with_its_input() -> None:
    """It stores the tool and its input, or their digest."""
    assert len(mark("write", {"content": "x" * 1_000_000})) <= MARK_LENGTH


def test_a_net_that_is_restored_before_a_call_ends_sees_the_end(ruled: Any) -> None:
    """While it is removed, it sees no events."""
    line = "require backup before delete"

    def after(*, back_before_the_end: bool) -> str:
        session = ruled()
        session.monitor.add_net(line)
        session.propose("backup", id="b")
        session.monitor.remove_net(line)
        if back_before_the_end:
            session.monitor.add_net(line)
        session.see(ev.ToolCallCompleted(tool_call_id="b", tool_name="backup"))
        if not back_before_the_end:
            session.monitor.add_net(line)
        return str(session.ask("delete"))

    assert (after(back_before_the_end=True), after(back_before_the_end=False)) == ("allow", "deny")


def test_an_added_net_has_its_own_state_if_another_was_removed(drive: Any) -> None:
    old, new = "limit x to 5 per session", "limit y to 1 per session"
    session = drive({"on_violation": "deny", "nets": [old]})
    on = session.monitor
    on.propose(ToolCall(id="x", name="x"))
    on.remove_net(old)
    on.add_net(new)
    answers = [on.propose(ToolCall(id=f"y{n}", name="y")).action for n in range(2)]
    on.add_net(old)

    assert answers == ["allow", "deny"]
    for monitor in (on, session.compiled.restore(on.snapshot())):
        assert monitor.status() == f"{old}: budget: 4; now: x\n{new}: no token; not now: y"


def test_a_rule_that_failed_denies_calls_of_a_tool_with_a_cached_plan() -> None:
    """The failure invalidates the plan."""

    def on_result(*_: Any) -> None:
        raise RuntimeError("no database")

    net = {
        "name": "n",
        "places": ["p"],
        "initial_marking": {"p": 2},
        "transitions": [{"name": "t", "tools": ["x"], "inputs": ["p"], "deferred": True}],
    }
    policy = parse_policies({"name": "p", "on_violation": "deny", "nets": [net]})[0]
    monitor = compile_policy(policy, on_results={"n": on_result}).monitor()
    first = monitor.propose(ToolCall(id="1", name="x"))
    monitor.observe(ev.ToolCallCompleted(tool_call_id="1", tool_name="x"))
    second = monitor.propose(ToolCall(id="2", name="x"))

    assert (first.action, second.action, second.errors) == ("allow", "deny", ("n",))


def test_more_tools_than_the_cache_holds_are_evaluated_alike(ruled: Any) -> None:
    """A model may invent any number of tool names."""
    monitor = ruled({"type": "count", "tool": "*", "max": 2 * PLANS_BOUND}).monitor
    actions = [monitor.propose(ToolCall(id=f"c{n}", name=f"t{n}")).action for n in range(2 * PLANS_BOUND + 1)]

    assert actions == ["allow"] * 2 * PLANS_BOUND + ["deny"]


def test_more_combinations_of_conditions_than_the_cache_holds_are_evaluated_alike(ruled: Any) -> None:
    """Each condition is evaluated for each call. Only what follows from the results is cached."""
    bits = range(PLANS_KEPT.bit_length())
    rules = (
        {"type": "blocklist", "id": f"r{n}", "tools": [{"tool": "x", "where": [{"path": f"$.b{n}", "equals": True}]}]}
        for n in bits
    )
    monitor = ruled(*rules).monitor
    for number in (*range(2 ** len(bits)), 0, 1, 2, 3):
        input = {f"b{n}": bool(number >> n & 1) for n in bits}
        decision = monitor.propose(ToolCall(id=f"c{number}", name="x", input=input))
        monitor.observe(ev.ToolCallDenied(tool_call_id=f"c{number}", tool_name="x"))

        assert [v.rule for v in decision.violations] == [f"r{n}" for n in bits if number >> n & 1]


def test_the_state_does_not_grow_with_usage_reports(drive: Any) -> None:
    session = drive({"limits": {"max_total_tokens": 10**9}})
    sizes = []
    for n in range(4_000):
        session.see(ev.TokenUsageUpdated(event_id=f"report-{n:06}", input_tokens=1))
        if n in (1_500, 3_999):
            sizes.append(len(session.monitor.snapshot()))

    assert sizes[1] - sizes[0] < 100


def decided(on: Monitor, id: str, tool: str = "x", turn: int = 0) -> str:
    decision = on.decide(ToolCall(id=id, name=tool, turn=turn))
    assert isinstance(decision, Decision)
    return decision.action


def start(on: Monitor, id: str, tool: str = "x", turn: int = 0, **input: Any) -> list[str]:
    event = ev.ToolCallStarted(tool_call_id=id, tool_name=tool, tool_input=input, turn=turn)
    return [violation.rule for violation in on.observe(event)]


def test_a_decision_spends_nothing_until_its_call_starts(ruled: Any) -> None:
    """Two calls are allowed while none has started. The one that starts is not evaluated again."""
    on = ruled({"type": "count", "id": "once", "tool": "x", "max": 1}).monitor

    assert [decided(on, "a"), decided(on, "b")] == ["allow", "allow"]
    assert start(on, "a") == []
    assert decided(on, "c") == "deny"


def test_a_call_is_decided_in_the_state_at_the_time_of_the_decision(ruled: Any) -> None:
    """The earlier turn was active when the call was requested, and is over now."""
    on = ruled({"type": "max_parallel", "tool": "*", "max": 1}).monitor
    on.observe(ev.TurnStarted(turn=1))
    start(on, "a", turn=1)
    on.observe(ev.ToolCallRequested(tool_call_id="b", tool_name="x", tool_input={}))
    before = decided(ruled().monitor, "b"), decided(on, "b")
    on.observe(ev.TurnStarted(turn=2))

    assert (before, decided(on, "b")) == (("allow", "deny"), "allow")


def test_a_call_that_never_started_has_not_failed(ruled: Any) -> None:
    """It was denied, or its outcome was made up, so nothing that a start would have spent is returned."""
    on = ruled({"type": "forbids_after", "id": "after", "tool": "x", "tools": ["y"]}).monitor
    start(on, "s", o=1)
    decided(on, "a")
    for made_up in (ev.ToolCallFailed, ev.ToolCallCompleted):
        on.observe(made_up(tool_call_id="a", tool_name="x"))
    assert "a" in on.calls
    on.observe(ev.ToolCallDenied(tool_call_id="a", tool_name="x"))

    assert "a" not in on.calls
    assert decided(on, "b", "y") == "deny"
