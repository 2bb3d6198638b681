"""Preflight is bounded: it counts its steps, stops at the bound, and reports which checks it did not finish."""

import time
from typing import Any

import pytest

from proctor.policies import PolicyError, ToolCall, compile_policy, merge_policies, parse_policies, preflight

HUGE = 1_000_000_000
SECONDS = 60
"""Processor time: far more than preflight needs, and far less than these policies took without the bound."""


def rules(*written: dict[str, Any]) -> dict[str, Any]:
    return {"name": "p", "rules": list(written)}


def some_input(n: int) -> dict[str, Any]:
    """A selector that reads one input."""
    return {"tool": "x", "where": [{"path": f"$.a{n}", "equals": n}]}


def net(**fields: Any) -> dict[str, Any]:
    return {"name": "p", "nets": [{"name": "n", "places": ["p", "q"], **fields}]}


LARGE: dict[str, dict[str, Any]] = {
    "count min": rules({"type": "count", "tool": "x", "min": HUGE}),
    "count exact": rules({"type": "count", "tool": "x", "exact": HUGE}),
    "count max": rules({"type": "count", "tool": "x", "max": HUGE, "min": HUGE}),
    "many counts": rules(*({"type": "count", "tool": f"x{n}", "min": HUGE + n} for n in range(50))),
    "within": rules({"type": "after", "trigger": "a", "then": "b", "within": HUGE}),
    "eventually": rules({"type": "eventually", "tool": "b", "within": HUGE}),
    "within_turns": rules({"type": "count", "tool": "x", "max": 3, "within_turns": HUGE}),
    "breaker": rules({"type": "circuit_breaker", "consecutive": HUGE, "total": HUGE}),
    "parallel": rules({"type": "max_parallel", "max": HUGE}),
    "turns": rules({"type": "precondition", "tool": "x", "requires": [{"turns_gte": HUGE}]}),
    "at_least": rules({"type": "blocklist", "tools": [{"tool": "x", "where": [
        {"path": "$.a[*]", "equals": 1, "at_least": HUGE}]}]}),
    "limits": {"name": "p", "limits": {"max_turns": HUGE, "max_cost_usd": 1e300}},
    "marking": net(initial_marking={"p": HUGE}, transitions=[{"name": "t", "inputs": ["p"], "tools": ["x"]}]),
    "calls in flight": net(initial_marking={"p": 50_000}, transitions=[
        {"name": "t", "inputs": ["p"], "outputs": ["p"], "tools": ["x"], "deferred": True},
    ]),
    "many calls in flight": {"name": "p", "nets": [
        {"name": f"n{n}", "places": ["p"], "initial_marking": {"p": 10_000}, "transitions": [
            {"name": "t", "inputs": ["p"], "outputs": ["p"], "tools": [f"x{n}"], "deferred": True},
        ]} for n in range(20)
    ]},
    "wide transition": net(transitions=[
        {"name": "t", "outputs": ["p"] * 10_000, "tools": ["x"]},
        {"name": "u", "inputs": ["p"] * 10_000, "tools": ["y"]},
    ]),
    "many lines": {"name": "p", "nets": [f"require a{n} before b{n}" for n in range(800)]},
    "one side": {"name": "p", "nets": [f"require a{n} before b" for n in range(300)]},
    "many befores": rules(*({"type": "before", "first": f"a{n}", "then": f"b{n}"} for n in range(1500))),
    "a chain": rules(*({"type": "before", "first": f"a{n}", "then": f"a{n + 1}"} for n in range(1000))),
    "many denies": {"name": "p", "tool_rules": [{"deny": [f"t{n}"]} for n in range(2000)]},
    "many globs": {"name": "p", "tool_rules": [{"deny": [f"*a{n}*" for n in range(300)]}]},
    "glob rules": rules(*({"type": "before", "first": f"*a{n}*", "then": f"*b{n}*"} for n in range(150))),
    "many inputs": rules(*({"type": "blocklist", "tools": [some_input(n)]} for n in range(400))),
    "inputs of one rule": rules({"type": "before", "first": [some_input(n) for n in range(200)],
                                 "then": [some_input(n) for n in range(200, 400)]}),
    "many priors": rules({"type": "precondition", "tool": "x", "requires": [{"prior": f"a{n}"} for n in range(999)]}),
    "a long sequence": rules({"type": "sequence", "tools": [f"a{n}" for n in range(1500)]}),
    "virtual names": {
        "name": "p",
        "virtual_tools": [{"tool": "bash", "path": "$.command", "match": f"w{n}", "as": f"v{n}"} for n in range(600)],
        "tool_rules": [{"deny": [f"v{n}" for n in range(600)]}],
    },
}  # fmt: skip


@pytest.mark.parametrize("policy", LARGE.values(), ids=list(LARGE))
def test_preflight_and_compiling_end_soon_on_large_policies(policy: dict[str, Any]) -> None:
    """Huge numbers, many rules, many conditions."""
    merged = merge_policies(parse_policies(policy))
    began = time.process_time()
    preflight(merged)
    compile_policy(merged).monitor()

    assert time.process_time() - began < SECONDS


def test_unfinished_checks_are_reported_by_name() -> None:
    """This is a report, not an error: runs still enforce the rules. Findings from before the bound are kept."""
    policy = {**LARGE["many inputs"], "limits": {"max_turns": 0}}
    findings = preflight(merge_policies(parse_policies(policy)), steps=5_000)
    (unfinished,) = (each for each in findings if each.code == "not_finished")

    assert findings.unfinished
    assert unfinished.severity == "report"
    assert unfinished.witness
    assert [each.code for each in findings.refusals] == ["zero_limit"]


def test_stopping_early_adds_no_rejection() -> None:
    """An unfinished check counts as a check that did not start."""
    chain = ({"type": "before", "first": "b" if n == 0 else f"c{n - 1}", "then": f"c{n}"} for n in range(6))
    circle = [
        {"type": "before", "first": "a", "then": "b"}, {"type": "never_after", "trigger": "a", "forbidden": "b"}
    ]  # fmt: skip
    needed = [{"type": "require", "tool": "d"}, {"type": "before", "first": "a", "then": "d"}]
    merged = merge_policies(parse_policies(rules(*circle, *chain, *needed)))
    whole = {str(each) for each in preflight(merged).refusals}

    assert whole
    for steps in range(2_000, 3_000, 10):
        assert {str(each) for each in preflight(merged, steps=steps).refusals} <= whole


def test_a_caller_can_stop_preflight() -> None:
    """Preflight polls `should_stop`, and stops at the first true answer."""
    questions: list[None] = []

    def should_stop() -> bool:
        questions.append(None)
        return len(questions) > 3

    findings = preflight(merge_policies(parse_policies(LARGE["many inputs"])), should_stop=should_stop)

    assert findings.unfinished
    assert len(questions) == 4


def test_a_small_policy_needs_few_steps() -> None:
    """So preflight for an ordinary run does not have to leave the event loop."""
    policy = rules(*({"type": "before", "first": f"a{n}", "then": f"b{n}"} for n in range(30)))

    assert not preflight(merge_policies(parse_policies(policy)), steps=200_000).unfinished


def test_a_net_with_silent_transitions_must_start_with_few_tokens() -> None:
    """Each of these tokens fires a transition before the session begins."""
    transitions = [{"name": "t", "inputs": ["p"], "outputs": ["q"]}, {"name": "u", "inputs": ["q"], "tools": ["y"]}]

    with pytest.raises(PolicyError, match="starts with less than 10,000 tokens"):
        parse_policies(net(initial_marking={"p": HUGE}, transitions=transitions))


def test_a_net_with_too_many_silent_firings_denies() -> None:
    """Transitions that multiply tokens need more firings than the bound allows."""
    written = net(
        transitions=[
            {"name": "t", "outputs": ["p"] * 10_000, "tools": ["x"]},
            {"name": "u", "inputs": ["p"]},
            {"name": "w", "tools": ["y"]},
        ]
    )
    monitor = compile_policy(merge_policies(parse_policies(written))).monitor()

    assert monitor.propose(ToolCall(id="1", name="x")).action == "allow"
    denied = monitor.propose(ToolCall(id="2", name="y"))
    assert denied.action == "cancel"
    assert "fire by themselves" in denied.violations[0].details["expected"]
    assert monitor.narrow(["x", "y", "z"]) == ["z"]


@pytest.mark.parametrize("count", ["10001", "9" * 5_000])
def test_a_net_line_with_too_large_a_count_is_an_error(count: str) -> None:
    """Python's `int` rejects the longer number."""
    with pytest.raises(PolicyError, match="counts to 10,000 at most"):
        parse_policies({"name": "p", "nets": [f"limit x to {count} per session"]})

    assert parse_policies({"name": "p", "nets": ["limit x to 10000 per session"]})
