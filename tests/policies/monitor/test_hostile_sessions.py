"""Hostile sessions: the monitor decides on any value that an agent sends, and its state stays bounded."""

import os
from typing import Any

import pytest
from reference.generating import FAMILIES

from proctor.policies import CompiledPolicy, EventError, compile_policy, encode_event, merge_policies, parse_policies
from proctor.policies import events as ev
from proctor.policies.events.calls import MOST_PARTS, ToolCall
from proctor.policies.monitor import call_table
from proctor.policies.monitor.call_table import FINISHED_KEPT
from proctor.policies.rules import machine
from proctor.policies.rules.machine import BOUND
from proctor.policies.values import regexes

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
    {"type": "precondition", "tool": "go", "requires": [{"prior": "*",
        "output": [{"path": "$", "equals": {"arg": "$.o"}}]}]},
    {"type": "precondition", "tool": "go", "requires": [{"prior": {"tool": "*",
        "where": [{"path": "$.o", "lte": {"arg": "$.o"}}]}}]},
    {"type": "provenance", "tool": "*", "path": "$.p", "extract": r"\w+",
        "from": ["user_message", {"tool": "*", "path": "$"}]},
    {"type": "loop", "window": 50, "threshold": 50},
    {"type": "max_parallel", "max": 10**9},
    {"type": "circuit_breaker", "total": 10**9},
    {"type": "blocklist", "tools": [{"tool": "*", "where": [{"path": "$.o[*]",
        "in": {"output_of": ["*"], "path": "$.q"}}]}]},
]  # fmt: skip
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
    """An object that only Python can build: a list that holds an object that holds the list, twice."""
    value: list[Any] = [1]
    value += [{"o": value}, {"o": value}]
    return value


def shared() -> Any:
    """A few lists whose text would be astronomically long: each holds the previous one twice."""
    value: list[Any] = [1]
    for _ in range(100):
        value = [value, value]
    return value


VALUES = {
    "a circle": circle(),
    "a list shared again and again": shared(),
    "a long list shared often": [[0] * 100_000] * 100_000,
    "lists in lists": nested(100_000, "list"),
    "objects in objects": nested(100_000, "object"),
    "as deep as a reader reads": nested(900, "object"),
    "deep text": "[" * 900 + "]" * 900,
    "a long text": "x" * 300_000,
    "half a character": ["\ud800", {"a\udfff": "\ud800"}],
    "a number of many digits": [10**5000, -(10**400)],
    "not a number": [float("nan"), float("inf")],
    "no JSON": [object(), b"\xff", {None: 1}, {1, 2}],
    "many values": list(range(BOUND + 1_000)),
    "many keys": {str(n): n for n in range(BOUND + 1_000)},
    "a number as text": "9" * 5000,
}


@pytest.fixture(scope="module")
def policy() -> CompiledPolicy:
    """Every family that stores something of a call; none denies plain calls."""
    compiled: CompiledPolicy = compile_policy(merge_policies(parse_policies(DOCUMENT)))
    return compiled


@pytest.mark.parametrize(("tool", "value"), [
    *(pytest.param(tool, value, id=f"{tool} {name}") for name, value in VALUES.items() for tool in ("x", "go")),
    *((tool, value) for value in (1, VALUES["half a character"]) for tool in ("\ud800", "x" * 100_000)),
])  # fmt: skip
def test_no_value_raises_in_the_monitor(policy: CompiledPolicy, tool: str, value: Any) -> None:
    """As input, output, message and id, proposed or only observed. The snapshot can be restored."""
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
    assert policy.restore(monitor.snapshot()).state.session.count == monitor.state.session.count


def input_of_parts(parts: int) -> dict[str, Any]:
    """An input with this many parts, including the object itself."""
    return {f"k{number}": number for number in range(parts - 1)}


@pytest.mark.parametrize(("parts", "action"), [(MOST_PARTS, "allow"), (MOST_PARTS + 1, "deny")])
def test_an_object_of_plain_values_has_the_same_bound_as_a_list(parts: int, action: str) -> None:
    monitor = compile_policy(merge_policies(parse_policies({"name": "p"}))).monitor()

    assert monitor.propose(ToolCall(id="1", name="x", input=input_of_parts(parts), turn=1)).action == action


@pytest.mark.parametrize("doc", [{}, {"rules": [{"type": "count", "tool": "*", "max": 9, "key": "$.o"}]}, DOCUMENT])
@pytest.mark.parametrize("value", [circle(), shared()], ids=["circle", "shared"])
def test_a_cyclic_or_unbounded_input_is_denied_with_the_reason(doc: dict[str, Any], value: Any) -> None:
    """A Python function's objects may contain themselves. Neither the gate nor the event log follows them
    for ever.
    """
    document = {"version": 1, "name": "p", "on_violation": "deny", **doc}
    monitor = compile_policy(merge_policies(parse_policies(document))).monitor()
    decision = monitor.propose(ToolCall(id="1", name="x", input={"o": value}, turn=1))
    started = ev.ToolCallStarted(tool_call_id="2", tool_name="x", tool_input={"o": value})

    assert decision.action == "deny"
    assert "a value in a circle, or of more than 200,000 parts" in decision.explain()
    assert [found.rule for found in monitor.observe(started)] == ["input"]
    with pytest.raises(ValueError, match="a value in a circle"):
        encode_event(started)


@pytest.mark.parametrize(
    ("event", "wrong"),
    [
        (ev.ToolCallStarted(tool_call_id=5, tool_name="x"), "a call's id is text, not a value of type `int`"),  # type: ignore[arg-type]
        (ev.ToolCallStarted(tool_call_id=[5], tool_name="x"), "unhashable"),  # type: ignore[arg-type]
        (ev.ToolCallStarted(tool_call_id="2", tool_name=5), "a tool's name is text, not a value of type `int`"),  # type: ignore[arg-type]
        (ev.ToolCallStarted(tool_call_id="2", tool_name="x", turn="x"), "not supported between"),  # type: ignore[arg-type]
    ],
)
def test_a_call_with_fields_of_wrong_types_is_a_violation(
    policy: CompiledPolicy, event: ev.ToolCallStarted, wrong: str
) -> None:
    """The gate denies it, and the state keeps nothing that could not be restored."""
    monitor = policy.monitor()
    monitor.observe(ev.ToolCallStarted(tool_call_id="1", tool_name="x", turn=1))
    call = ToolCall(id=event.tool_call_id, name=event.tool_name, turn=event.turn)

    assert wrong in monitor.propose(call).explain()
    assert [(found.rule, found.action) for found in monitor.observe(event)] == [("input", "deny")]
    assert policy.restore(monitor.snapshot()).state.calls.keys() == {"1"}


@pytest.mark.parametrize(
    ("event", "wrong"),
    [
        (ev.TokenUsageUpdated(input_tokens="x"), "`token_usage_updated` event cannot be evaluated: "),  # type: ignore[arg-type]
        (ev.TurnStarted(turn="x"), "`turn_started` event cannot be evaluated: "),  # type: ignore[arg-type]
        ({"type": "tool_call_started"}, "expected an event, got a value of type `dict`"),
    ],
)
def test_an_event_that_cannot_be_evaluated_is_an_error(policy: CompiledPolicy, event: Any, wrong: str) -> None:
    """Fields of wrong types, or no event at all, are never ignored."""
    with pytest.raises(EventError, match=wrong):
        policy.monitor().observe(event)


def test_a_text_with_too_many_matches_is_denied_as_input_and_supplies_its_first_as_output(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A search beyond the first bytes may read all that follows, so its work is bounded."""
    monkeypatch.setattr(machine, "VIEW", 16)
    monkeypatch.setattr(regexes, "WORK", 10_000)
    supplying = {"tool": "read", "regex": "x|id-\\d"}
    rule = {"type": "provenance", "tool": "go", "path": "$.o", "from": [supplying], "except": ["x"]}
    rule["extract"] = supplying["regex"]
    document = {"version": 1, "name": "p", "on_violation": "deny", "rules": [rule]}
    monitor = compile_policy(merge_policies(parse_policies(document))).monitor()

    def ask(text: str) -> str:
        return monitor.propose(ToolCall(id=text[:9], name="go", input={"o": text}, turn=1)).explain()

    sparse = f"{'.' * 20}x" * 100

    assert "`x|id-\\d` occurs too often in 2,100 bytes of text to be listed" in ask(sparse)

    monitor.observe(ev.ToolCallStarted(tool_call_id="1", tool_name="read", turn=1))
    monitor.observe(ev.ToolCallCompleted(tool_call_id="1", tool_name="read", tool_output=f"id-1 {sparse} id-2"))

    assert ask("id-1").startswith("go (id-1): allow")
    assert "`id-2` did not come from" in ask("id-2")


def test_matches_are_listed_in_long_texts_as_in_short_ones() -> None:
    """The next match is far away, longer than the first view, or of characters of several bytes."""
    far, long = "." * 3 * regexes.VIEW, "é" * regexes.VIEW

    for view in (0, regexes.VIEW):
        assert list(regexes.Regex("id-(\\d)").values([f"id-1{far}id-2{far}", far, "id-3"], view)) == ["1", "2", "3"]
        assert list(regexes.Regex("é+").values([f"{long} é"], view)) == [long, "é"]
        for before in range(regexes.VIEW - 6, regexes.VIEW + 1):
            assert list(regexes.Regex("é+").values([" " * before + "ééé"], view)) == ["ééé"]
        assert list(regexes.Regex("\\d*").values(["é1"], view)) == ["", "1", ""]


def test_a_pattern_that_prefers_a_distant_match_is_listed_in_little_work() -> None:
    """In outputs the nearer match is used; in the input of a call no match is skipped."""
    text = "x" * 3 + "." * regexes.VIEW + "y"

    assert list(regexes.Regex("x.*y|x").values([text], regexes.VIEW)) == ["x"] * 3
    assert list(regexes.Regex("x.*y|x").values([text])) == [text]


def test_outcomes_without_a_call_and_repeated_ones_change_nothing(policy: CompiledPolicy) -> None:
    """An outcome for an unknown id, and the same outcome twice."""
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


def test_the_state_is_bounded(policy: CompiledPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond BOUND values a rule and FINISHED_KEPT ids a run (fewer here), more calls add nothing (a million in a
    long run).
    """
    kept = FINISHED_KEPT if LONG else BOUND
    monkeypatch.setattr(call_table, "FINISHED_KEPT", kept)
    monitor = policy.monitor()
    full = max(BOUND, kept) + 1_000
    sizes = []
    for n in range(1_000_000 if LONG else full + 5_000):
        end: dict[str, Any] = {"tool_call_id": f"call-{n}", "tool_name": "x"}
        input = {"o": f"id-{n}", "p": f"id-{n}"}
        monitor.observe(ev.ToolCallStarted(**end, tool_input=input, turn=n + 1))
        monitor.observe(ev.ToolCallCompleted(**end, tool_output={"o": f"id-{n}", "q": f"out-{n}"}))
        if n == full:
            sizes.append(len(monitor.snapshot()))

    assert len(monitor.snapshot()) < sizes[0] * 1.05
    assert sizes[0] < 30_000_000


def test_every_family_has_a_differential_test() -> None:
    from proctor.policies.rules import RULES as WRITTEN

    assert set(WRITTEN) == {family.split()[0] for family in FAMILIES}
