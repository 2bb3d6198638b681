"""What a session keeps of its calls and of what they do to its rules: bounded, and the same however it is kept."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.policies import ToolCall, compile_policy, parse_policies
from proctor.policies import events as ev
from proctor.policies.events.calls import MARK_LENGTH, mark
from proctor.policies.monitor.program import PLANS_KEPT
from proctor.policies.monitor.state import PLANS_BOUND


def policy_of(*rules: Any, **more: Any) -> Any:
    return compile_policy(parse_policies({"name": "p", "on_violation": "deny", "rules": list(rules), **more})[0])


@pytest.mark.parametrize("text", ["short", "x" * 10 * MARK_LENGTH])
def test_a_call_that_is_over_is_known_by_its_input_whatever_the_order_of_its_keys(ruled: Any, text: str) -> None:
    """Its start told again counts for nothing more; another input under the id is refused."""
    session = ruled({"type": "count", "tool": "x", "max": 1})
    session.ok("x", id="c", text=text, line=1)
    again = session.saw("x", id="c", line=1, text=text)
    other = session.monitor.propose(ToolCall(id="c", name="x", input={"line": 2, "text": text}))

    assert (again, [v.rule for v in other.violations]) == ([], ["tool_call_id"])


@pytest.mark.parametrize("length", [1, *range(MARK_LENGTH - 60, MARK_LENGTH + 20, 3), 10 * MARK_LENGTH])
def test_a_call_that_is_over_is_known_however_a_client_writes_its_numbers(ruled: Any, length: int) -> None:
    """7.0 is 7, in a call whose input is kept and in one whose digest is; 7 is no 8."""
    for first, then in [(7.0, 7), (7, 7.0), (1e20, 10**20), (10**20, 1e20)]:
        session = ruled({"type": "count", "tool": "x", "max": 1})
        session.ok("x", id="c", text="x" * length, deep=[{"line": first}])
        again = session.saw("x", id="c", text="x" * length, deep=[{"line": then}])
        other = session.saw("x", id="c", text="x" * length, deep=[{"line": then + 100_000}])

        assert (again, len(other)) == ([], 1)


def test_what_is_kept_of_a_call_that_is_over_does_not_grow_with_its_input() -> None:
    """A mark is the tool and its input, or a digest of them."""
    assert len(mark("write", {"content": "x" * 1_000_000})) <= MARK_LENGTH


def test_a_net_that_is_put_back_before_a_call_ends_hears_of_the_end(ruled: Any) -> None:
    """While it is removed, it hears of nothing."""
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


def test_a_rule_that_broke_while_it_moved_refuses_calls_that_were_looked_at_before() -> None:
    """What was worked out for a tool is worked out anew."""

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


def test_more_tools_than_are_remembered_are_judged_alike() -> None:
    """A model may invent any number of names."""
    monitor = policy_of({"type": "count", "tool": "*", "max": 2 * PLANS_BOUND}).monitor()
    actions = [monitor.propose(ToolCall(id=f"c{n}", name=f"t{n}")).action for n in range(2 * PLANS_BOUND + 1)]

    assert actions == ["allow"] * 2 * PLANS_BOUND + ["deny"]


def test_more_combinations_of_conditions_than_are_remembered_are_judged_alike() -> None:
    """Each condition on the input is asked of each call; only what follows from the answers is remembered."""
    bits = range(PLANS_KEPT.bit_length())
    rules = (
        {"type": "blocklist", "id": f"r{n}", "tools": [{"tool": "x", "where": [{"path": f"$.b{n}", "equals": True}]}]}
        for n in bits
    )
    monitor = policy_of(*rules).monitor()
    for number in (*range(2 ** len(bits)), 0, 1, 2, 3):
        input = {f"b{n}": bool(number >> n & 1) for n in bits}
        decision = monitor.propose(ToolCall(id=f"c{number}", name="x", input=input))
        monitor.observe(ev.ToolCallDenied(tool_call_id=f"c{number}", tool_name="x"))

        assert [v.rule for v in decision.violations] == [f"r{n}" for n in bits if number >> n & 1]


def test_rules_with_different_keys_read_each_its_own() -> None:
    """Two keys of one call are not mixed up, and rules with the same key agree."""
    monitor = policy_of(
        {"type": "count", "id": "a", "tool": "x", "max": 1, "key": "$.a"},
        {"type": "count", "id": "b", "tool": "x", "max": 1, "key": "$.b"},
        {"type": "max_calls", "id": "c", "tool": "x", "max": 1, "key": "$.a"},
    ).monitor()
    inputs: list[dict[str, Any]] = [
        {"a": "1", "b": "1"},
        {"a": 1.0, "b": "2"},
        {"a": ["1", "3"], "b": "4"},
        {"a": "", "b": 1},
        {"a": None},
        {},
    ]
    found = [
        [v.rule for v in monitor.propose(ToolCall(id=f"c{n}", name="x", input=input)).violations]
        for n, input in enumerate(inputs)
    ]

    assert found == [[], ["a", "c"], ["a", "c"], ["b"], [], ["a", "b", "c"]]


def test_a_window_over_responses_still_counts_the_calls_in_all(ruled: Any) -> None:
    """`min` is of the whole run."""
    session = ruled({"type": "count", "id": "r", "tool": "x", "max": 3, "min": 3, "within_turns": 1})
    for _ in range(3):
        session.ok("x")

    assert session.end().rules["r"].status == "held"


def test_a_cumulative_report_after_deltas_continues_from_the_threads_figure(drive: Any) -> None:
    """The first cumulative one of a run says so by being no lower than the thread was."""
    session = drive({"limits": {"max_total_tokens": 35}})
    session.see(ev.RunStarted(run_id="a"))
    session.see(ev.TokenUsageUpdated(scope="cumulative", input_tokens=30))
    session.see(ev.RunStarted(run_id="b"))
    session.see(ev.TokenUsageUpdated(scope="delta", input_tokens=30))
    found = session.see(ev.TokenUsageUpdated(scope="cumulative", input_tokens=60))

    assert (found, session.monitor.usage.total_tokens) == ([], 30)


def test_what_is_remembered_of_reports_does_not_grow(drive: Any) -> None:
    """A run may report for days."""
    session = drive({"limits": {"max_total_tokens": 10**9}})
    sizes = []
    for n in range(4_000):
        session.see(ev.TokenUsageUpdated(event_id=f"report-{n:06}", input_tokens=1))
        if n in (1_500, 3_999):
            sizes.append(len(session.monitor.snapshot()))

    assert sizes[1] - sizes[0] < 100
