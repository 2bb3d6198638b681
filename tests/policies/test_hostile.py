"""Sessions made to hurt: whatever an agent says, the monitor answers, and what it keeps stays bounded."""

from __future__ import annotations

import os
from typing import Any

import pytest
from reference.generating import FAMILIES

from proctor.policies import CompiledPolicy, ToolCall, compile_policy, merge_policies, parse_policies
from proctor.policies import events as ev
from proctor.policies.language import regexes
from proctor.policies.rules.machine import BOUND
from proctor.policies.session import FINISHED_KEPT

LONG = int(os.environ.get("PROCTOR_LONG") or 0)
ANY = {"prior": "*", "same": [{"path": "$.o", "prior_output_path": "$.o"}]}
RULES: list[dict[str, Any]] = [
    {"type": "count", "tool": "*", "max": 10**9, "key": "$.o"},
    {"type": "count", "tool": "*", "max": 10**9, "of": "attempted", "within_turns": 3},
    {"type": "before", "first": "z", "then": "y", "key": "$.o"},
    {"type": "after", "trigger": "z", "then": "y"},
    {"type": "never_after", "trigger": "z", "forbidden": "y", "key": "$.o"},
    {"type": "sequence", "tools": ["z", "y"], "strict": True},
    {"type": "precondition", "tool": "go", "requires": [ANY]},
    {
        "type": "precondition",
        "tool": "go",
        "requires": [{"prior": "*", "output": [{"path": "$", "equals": {"arg": "$.o"}}]}],
    },
    {
        "type": "precondition",
        "tool": "go",
        "requires": [{"prior": {"tool": "*", "where": [{"path": "$.o", "lte": {"arg": "$.o"}}]}}],
    },
    {
        "type": "provenance",
        "tool": "*",
        "path": "$.p",
        "extract": r"\w+",
        "from": ["user_message", {"tool": "*", "path": "$"}],
    },
    {"type": "loop", "window": 50, "threshold": 50},
    {"type": "max_parallel", "max": 10**9},
    {"type": "circuit_breaker", "total": 10**9},
    {
        "type": "blocklist",
        "tools": [{"tool": "*", "where": [{"path": "$.o[*]", "in": {"output_of": ["*"], "path": "$.q"}}]}],
    },
]
DOCUMENT: dict[str, Any] = {
    "version": 1,
    "name": "p",
    "on_violation": "deny",
    "rules": RULES,
    "virtual_tools": [{"tool": "*", "path": "$.o", "match": "vv", "as": "virtual"}],
    "nets": ["require a before b", "limit push to 3 per test"],
    "limits": {"max_tool_calls": 10**9, "max_total_tokens": 10**9},
}


def nested(depth: int, kind: str) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value] if kind == "list" else {"o": value}
    return value


def circle() -> Any:
    """What only Python can make: a list that holds an object that holds the list, twice."""
    value: list[Any] = [1]
    value += [{"o": value}, {"o": value}]
    return value


VALUES = {
    "a circle": circle(),
    "lists in lists": nested(100_000, "list"),
    "objects in objects": nested(100_000, "object"),
    "as deep as a reader reads": nested(900, "object"),
    "deep text": "[" * 900 + "]" * 900,
    "a long text": "x" * 300_000,
    "half a character": ["\ud800", {"a\udfff": "\ud800"}],
    "a number of many digits": [10**5000, -(10**400)],
    "not a number": [float("nan"), float("inf")],
    "no JSON": [object(), b"\xff", {None: 1}, {1, 2}],
    "many values": list(range(20_000)),
    "many keys": {str(n): n for n in range(20_000)},
    "a number as text": "9" * 5000,
}


@pytest.fixture(scope="module")
def policy() -> CompiledPolicy:
    """Every family that keeps something of a call, none of which refuses plain calls."""
    compiled: CompiledPolicy = compile_policy(merge_policies(parse_policies(DOCUMENT)))
    return compiled


@pytest.mark.parametrize("tool", ["x", "go", "\ud800", "x" * 100_000])
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_no_value_gets_an_exception_out_of_the_monitor(policy: CompiledPolicy, tool: str, value: Any) -> None:
    """As input, output, message and id; proposed or only seen; and the state can be written and read back."""
    monitor = policy.monitor()
    call: dict[str, Any] = {"tool_name": tool, "tool_input": {"o": value, "p": value}}
    monitor.observe(ev.MessageSent(content=value))
    decision = monitor.propose(ToolCall(id="1", name=tool, input=call["tool_input"], turn=1))
    for id in ("1", "2"):
        monitor.observe(ev.ToolCallStarted(tool_call_id=id, **call, turn=1))
        monitor.observe(ev.ToolCallCompleted(tool_call_id=id, tool_name=tool, tool_output={"o": value, "q": value}))
    monitor.observe(ev.ToolCallStarted(tool_call_id="flying", **call, turn=-1))
    monitor.propose(ToolCall(id="2", name="go", input={"o": value}, turn=10**12))
    monitor.narrow([tool, "go"])
    monitor.finish()

    assert decision.explain()
    assert policy.restore(monitor.snapshot()).session.count == monitor.session.count


@pytest.mark.parametrize("doc", [{"rules": [{"type": "count", "tool": "*", "max": 9, "key": "$.o"}]}, DOCUMENT])
def test_an_input_in_a_circle_is_refused_with_what_is_wrong(doc: dict[str, Any]) -> None:
    """A function's own objects may hold themselves; no rule follows them for ever."""
    document = {"version": 1, "name": "p", "on_violation": "deny", **doc}
    monitor = compile_policy(merge_policies(parse_policies(document))).monitor()
    decision = monitor.propose(ToolCall(id="1", name="x", input={"o": circle()}, turn=1))

    assert decision.action == "deny"
    assert "a value in a circle" in decision.explain()


def test_a_text_with_more_occurrences_than_can_be_listed_is_refused_and_supplies_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each `x` is found after a search through all that follows, so the work is bounded."""
    monkeypatch.setattr(regexes, "WORK", 10_000)
    supplying = {"tool": "read", "regex": "x.*?y|x|id-\\d"}
    rule = {"type": "provenance", "tool": "go", "path": "$.o", "from": [supplying], "except": ["x"]}
    rule["extract"] = supplying["regex"]
    document = {"version": 1, "name": "p", "on_violation": "deny", "rules": [rule]}
    monitor = compile_policy(merge_policies(parse_policies(document))).monitor()

    def ask(text: str) -> str:
        return monitor.propose(ToolCall(id=text[:9], name="go", input={"o": text}, turn=1)).explain()

    assert "`x.*?y|x|id-\\d` occurs too often in a text of 1,000 characters to be listed" in ask("x" * 1_000)

    monitor.observe(ev.ToolCallStarted(tool_call_id="1", tool_name="read", turn=1))
    monitor.observe(ev.ToolCallCompleted(tool_call_id="1", tool_name="read", tool_output=f"id-1 {'x' * 1_000} id-2"))

    assert ask("id-1").startswith("go (id-1): allow")
    assert "`id-2` did not come from" in ask("id-2")


def test_outcomes_before_their_calls_and_repeated_ones_change_nothing(policy: CompiledPolicy) -> None:
    """An outcome for an unknown id, twice, and after the end of its call."""
    monitor = policy.monitor()
    before = monitor.snapshot()
    for _ in range(2):
        monitor.observe(ev.ToolCallCompleted(tool_call_id="a", tool_name="x", tool_output=1))
        monitor.observe(ev.ToolCallFailed(tool_call_id="a", tool_name="x", error="e"))
        monitor.observe(ev.ToolCallDenied(tool_call_id="a", tool_name="x", decision="deny"))

    assert monitor.snapshot() == before

    monitor.observe(ev.ToolCallStarted(tool_call_id="a", tool_name="x", tool_input={}, turn=1))
    monitor.observe(ev.ToolCallCompleted(tool_call_id="a", tool_name="x", tool_output=1))
    after = monitor.snapshot()
    monitor.observe(ev.ToolCallFailed(tool_call_id="a", tool_name="x", error="e"))
    monitor.observe(ev.ToolCallStarted(tool_call_id="a", tool_name="x", tool_input={}, turn=1))

    assert monitor.snapshot() == after


def test_the_state_stops_growing(policy: CompiledPolicy) -> None:
    """Past BOUND values a rule and FINISHED_KEPT ids a run, more calls keep no more (a million in a long run)."""
    monitor = policy.monitor()
    full = max(BOUND, FINISHED_KEPT) + 1_000
    sizes = []
    for n in range(1_000_000 if LONG else full + 9_000):
        end: dict[str, Any] = {"tool_call_id": f"call-{n}", "tool_name": "x"}
        input = {"o": f"id-{n}", "p": f"id-{n}"}
        monitor.observe(ev.ToolCallStarted(**end, tool_input=input, turn=n + 1))
        monitor.observe(ev.ToolCallCompleted(**end, tool_output={"o": f"id-{n}", "q": f"out-{n}"}))
        if n == full:
            sizes.append(len(monitor.snapshot()))

    assert len(monitor.snapshot()) < sizes[0] * 1.05
    assert sizes[0] < 30_000_000


def test_every_family_that_may_be_judged_is_among_the_differential_tests() -> None:
    """A new family needs a second reading."""
    from proctor.policies.rules import RULES as WRITTEN

    assert set(WRITTEN) == {family.split()[0] for family in FAMILIES}
