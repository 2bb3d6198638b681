"""The monitor decides calls: one state for all rules, denied calls spend nothing, approvals bind to the
shown input.
"""

from collections.abc import Callable
from typing import Any

import pytest

from proctor.policies import Limits, compile_policy, loosened, merge_policies, parse_policies, preflight, verify
from proctor.policies import events as ev
from proctor.policies.errors import EventError, PolicyError
from proctor.policies.events import decode_event, encode_event
from proctor.policies.events.calls import Decision, ToolCall
from proctor.policies.events.run_context import Capabilities
from proctor.policies.language.conditions import Condition
from proctor.policies.language.selectors import ToolWhere
from proctor.policies.policy import Allow, Deny, Policy
from proctor.policies.rules import Check
from proctor.policies.rules.petri_net import Net, Transition
from proctor.policies.stack.clauses import clauses_of


def test_an_unreadable_call_with_a_used_id_does_not_change_the_first_call(ruled: Any) -> None:
    """The call is denied, and the denial does not end the first call, which is running."""
    session = ruled({"type": "forbids_after", "tool": "x", "tools": ["y"]})
    endless: dict[str, Any] = {}
    endless["all"] = endless
    session.ask("x", id="k")

    session.see(ev.ToolCallRequested(tool_call_id="k", tool_name="x", tool_input=endless))

    assert [session.ask("x", id="k", **endless), session.ask("z", id="k")] == ["deny", "deny"]
    assert session.ask("y") == "deny"


def test_asynchronous_checks_are_not_called_for_an_unbounded_input() -> None:
    """The call is denied at once."""

    async def check(call: ToolCall) -> bool:
        return True

    endless: list[Any] = []
    endless.append(endless)
    where = (Condition(path="$.o", regex="x"),)
    rule = Check(tool=ToolWhere(tool="x", where=where), check=check)
    monitor = compile_policy(Policy(name="p", rules=[rule])).monitor()

    decision = monitor.decide(ToolCall(id="1", name="x", input={"o": endless}))
    assert isinstance(decision, Decision)
    assert (decision.action, decision.errors) == ("deny", ("input",))


@pytest.mark.parametrize(("member", "line"), [
    ({"nets": ['map bash.command "git push" as git-push']}, "block git-push"),
    ({"virtual_tools": [{"tool": "bash", "path": "$.command", "match": "push", "as": "git-push"}]},
        "block git-push"),
    ({"aliases": {"Shell": ["bash"]}}, "block shell"),
])  # fmt: skip
def test_a_net_added_to_a_live_run_resolves_the_names_of_every_policy(member: dict[str, Any], line: str) -> None:
    """A virtual name or alias of any policy has the same meaning in a net that is added later."""
    stack = [{"version": 1, "name": "org", **member}, {"version": 1, "name": "team"}]
    merged = merge_policies([policy for one in stack for policy in parse_policies(one)])
    monitor = compile_policy(merged).monitor()
    monitor.add_net(line)

    decision = monitor.propose(ToolCall(id="c", name="bash", input={"command": "git push"}))

    assert decision.action == "cancel"


@pytest.mark.parametrize("net", [
    "block",
    Net(name="n", places=(), transitions=(Transition(name="t", inputs=("nowhere",), tools=("x",)),)),
    "map bash.command ls as list",
])  # fmt: skip
def test_an_invalid_net_is_not_added(net: Any) -> None:
    """It is checked as a net in a file is."""
    monitor = compile_policy(Policy(name="p")).monitor()
    with pytest.raises(ValueError, match=r"is not a net|has no place|names tools and is not a net"):
        monitor.add_net(net)

    assert monitor.state.program.rules == ()


def test_the_status_of_nets_has_their_markings_and_the_allowed_tools(drive: Any) -> None:
    """Including removed nets; as text for a prompt."""
    release = {
        "name": "release",
        "places": ["idle", "tested", "out"],
        "initial_marking": {"idle": 1},
        "terminal_places": ["out"],
        "transitions": [
            {"name": "test", "inputs": ["idle"], "outputs": ["tested"], "tools": ["test", "check*"]},
            {"name": "ship", "type": "manual", "inputs": ["tested"], "outputs": ["out"], "tools": ["ship"]},
        ],
    }
    session = drive({"nets": [release, "limit push to 2 per session"], "rules": [{"type": "require", "tool": "x"}]})
    before = session.monitor.status().splitlines()
    session.ok("test")
    session.ok("push")
    session.monitor.remove_net("limit push to 2 per session")

    assert before == [
        "release: idle: 1; now: test, check*; not now: ship (a person is asked)",
        "limit push to 2 per session: budget: 2; now: push",
    ]
    assert session.monitor.status().splitlines() == [
        "release: tested: 1; now: ship (a person is asked); not now: test, check*",
        "limit push to 2 per session: budget: 1; now: push; not active",
    ]
    assert drive({}).monitor.status() == ""


def test_a_net_at_its_end_is_reported_and_does_not_affect_later_calls(drive: Any) -> None:
    """A net that has not reached its end is no violation either."""
    release = {
        "name": "release",
        "places": ["idle", "out"],
        "initial_marking": {"idle": 1},
        "terminal_places": ["out"],
        "transitions": [{"name": "ship", "inputs": ["idle"], "outputs": ["out"], "tools": ["ship"]}],
    }
    session, other = drive({"nets": [release]}), drive({"nets": [release]})
    before = session.monitor.metadata
    session.ok("ship")

    assert before == {}
    assert session.monitor.metadata == {"ended_nets": ["release"]}
    assert session.ask("read") == "allow"
    assert (session.monitor.finish().violations, other.monitor.finish().violations) == ((), ())


def test_a_restored_monitor_has_the_same_snapshot(ruled: Any) -> None:
    """Whatever the order of its events."""
    rules = [{"type": "blocklist", "tools": ["push"], "id": name} for name in ("b", "a", "d", "c")]
    session = ruled(*rules, {"type": "count", "tool": "*", "max": 1})
    session.ask("push")
    session.ask("read")
    session.ask("read")
    written = session.monitor.snapshot()

    assert session.compiled.restore(written).snapshot() == written
    assert b'"violated":["a","b","c","count-1","d"]' in written


def test_a_snapshot_of_another_policy_is_rejected(ruled: Any) -> None:
    """With an error and no partly restored state. So is text that is not a snapshot."""
    one, other = (ruled({"type": "require", "id": id, "tool": "x"}) for id in "ab")
    with pytest.raises(EventError, match="whose rules differ"):
        other.compiled.restore(one.monitor.snapshot())
    for data in (None, b"{]", b"{}", b"[1]", b"\xff"):
        with pytest.raises(EventError, match="not a snapshot of a monitor"):
            other.compiled.restore(data)


def test_a_decision_explains_itself_with_the_states_before_and_after() -> None:
    """Only if the monitor was asked to explain."""
    policy = parse_policies(
        {"version": 1, "name": "p", "rules": [{"type": "count", "id": "r", "tool": "x", "max": 1, "action": "deny"}]}
    )[0]
    monitor = compile_policy(policy).monitor(explain=True)
    first, second = (monitor.propose(ToolCall(id=str(n), name="x")) for n in range(2))

    assert "r: agrees [total: 0" in first.explain()
    assert "-> total: 1" in first.explain()
    assert "r: deny, `x` would be call number 2" in second.explain()


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (
            lambda: compile_policy(Policy(name="p")).monitor().narrow("bash"),
            "expected a list of tools, got the text `bash`",
        ),
        (
            lambda: compile_policy(Policy(name="p")).monitor().narrow([1]),  # type: ignore[list-item]
            "expected a tool's name, got a value of type `int`",
        ),
        (lambda: verify(Policy(name="p"), reach="x", tools=1), "expected a list of tools, got a value"),  # type: ignore[arg-type]
        (lambda: verify(Policy(name="p"), reach="x", tools=["mcp__*"]), "`mcp__.*` is a pattern: name each tool"),
        (lambda: loosened([Policy(name="p")]), "expected a policy, got a value of type `list`"),  # type: ignore[arg-type]
        (lambda: decode_event("\ud800"), "not an event: "),
        (lambda: compile_policy(Policy(name="p", tool_rules=[Deny(["\ud800"])])), "text has an incomplete character"),
        (lambda: compile_policy(Policy(name="p", aliases={"\ud800": ["x"]})), "text has an incomplete character"),
        (lambda: compile_policy(Policy(name="p", tool_rules=[Deny("bash")])), "expected a list, got the text `bash`"),
        (
            lambda: compile_policy(Policy(name="p", tool_rules=[Allow("bash")])),
            "expected a list, got the text `bash`",
        ),
        (lambda: compile_policy(Policy(name="p", aliases={"a": "bash"})), "expected a list, got the text `bash`"),
        (lambda: merge_policies(Policy(name="p")), "expected a list of policies, got a value of type `Policy`"),  # type: ignore[arg-type]
        (lambda: Capabilities(tools="bash"), "`tools` is a list of names, not the text `bash`"),
        (lambda: Capabilities(compiles="deny"), "`compiles` is a list of names, not the text `deny`"),  # type: ignore[arg-type]
    ],
)
def test_an_argument_of_a_wrong_type_is_an_error(make: Callable[[], object], wrong: str) -> None:
    """A single text is never read as a list of one-letter names."""
    with pytest.raises(ValueError, match=wrong):
        make()


@pytest.mark.parametrize(("use", "error", "wanted"), [
    (lambda m, wrong: m.narrow(wrong), ValueError, "a list of tools"),
    (lambda m, wrong: m.propose(wrong), EventError, "a tool call"),
    (lambda m, wrong: m.tick(wrong), EventError, "milliseconds since the epoch"),
    (lambda m, wrong: m.add_net(wrong), ValueError, "a net"),
    (lambda m, wrong: m.state.program.monitor(wrong), ValueError, "a run context"),
    (lambda m, wrong: preflight(m.state.program.policy, wrong), ValueError, "the capabilities of an adapter"),
    (lambda m, wrong: encode_event(wrong), EventError, "an event"),
    (lambda m, wrong: merge_policies(wrong), PolicyError, "a list of policies"),
    (lambda m, wrong: compile_policy(wrong), PolicyError, "a policy"),
])  # fmt: skip
def test_an_argument_of_the_wrong_kind_is_an_error(
    use: Callable[[Any, Any], object], error: type[Exception], wanted: str
) -> None:
    """It names the expected and the actual type, and the state is unchanged."""
    monitor = compile_policy(Policy(name="p", limits=Limits(max_duration_ms=1_000))).monitor()
    before = monitor.snapshot()

    with pytest.raises(error, match=f"expected {wanted}, got a value of type `object`"):
        use(monitor, object())
    assert monitor.snapshot() == before


def test_validators_are_called_only_if_no_net_denies() -> None:
    """In any order of the nets. A call that a net asks about is validated too."""
    nets = [
        {"name": "free", "places": [], "transitions": [{"name": "go", "tools": ["x", "y"]}]},
        "require a before x",
    ]
    validated: list[str] = []

    def refuse(call: Any, transition: Any, state: Any) -> bool:
        validated.append(call.name)
        return False

    [policy] = parse_policies({"version": 1, "name": "p", "on_violation": "deny", "nets": nets})
    compiled = compile_policy(policy, validators={"free": refuse})

    decisions = [compiled.monitor().propose(ToolCall(id=name, name=name)) for name in ("x", "y")]

    assert validated == ["y"]
    assert [[v.rule for v in decision.violations] for decision in decisions] == [["require a before x"], ["free"]]


def explained(session: Any, *calls: dict[str, Any]) -> str:
    """The explanation of the last of these calls of `x`."""
    monitor = session.compiled.monitor(explain=True)
    decisions = [monitor.propose(ToolCall(id=str(n), name="x", input=input)) for n, input in enumerate(calls)]
    return str(decisions[-1].explain())


@pytest.mark.parametrize(("values", "more"), [(6, ""), (7, "; 1 more"), (9, "; 3 more")])
def test_an_explanation_shows_a_few_instances_and_the_number_of_the_others(
    ruled: Any, values: int, more: str
) -> None:
    """A model can create very many. The instance of the last call does not exist yet."""
    session = ruled({"type": "count", "id": "r", "tool": "x", "max": 1, "key": "$.id"})
    explanation = explained(session, *({"id": f"v{n}"} for n in range(values)))
    before = explanation.partition("[")[2].partition(" -> ")[0]

    assert before == "; ".join(f"v{n}: total: 1, attempts: 0, turns: 0, forgotten: 0" for n in range(5)) + more


def test_an_explanation_names_a_limit_that_denies(drive: Any) -> None:
    """Beside the rules, which have states."""
    session = drive(
        {
            "limits": {"max_tool_calls": {"max": 1, "action": "deny"}},
            "rules": [{"type": "before", "id": "r", "first": "x", "then": "y"}],
        }
    )
    monitor = session.compiled.monitor(explain=True)
    first, second = (monitor.propose(ToolCall(id=str(n), name="x")).explain() for n in range(2))

    assert "max_tool_calls" not in first
    assert second.count("max_tool_calls: deny") == 1
    assert second.count("r: agrees") == 1
    assert "satisfied: no" in second


def test_a_deferred_transition_without_tools_is_an_error() -> None:
    """It would never fire."""
    net = {"name": "n", "places": ["a"], "transitions": [{"name": "t", "outputs": ["a"], "deferred": True}]}

    with pytest.raises(PolicyError, match="names the tools it waits for"):
        parse_policies({"version": 1, "name": "p", "nets": [net]})


@pytest.mark.parametrize(("document", "shown"), [
    ({"rules": [{"type": "forbidden_sequence", "id": "r", "sequence": ["x", "y"]}]},
        "[prefixes: 0, at: 0 -> prefixes: 1, at: 1]"),
    ({"nets": ["limit x to 1 per session"]}, "[budget: 1 -> no token]"),
    ({"rules": [{"type": "loop", "id": "r", "window": 9, "threshold": 5}]}, "[recent: none -> recent: 1]"),
])  # fmt: skip
def test_an_explanation_shows_the_state_of_a_rule_before_and_after_the_call(
    drive: Any, document: Any, shown: str
) -> None:
    """Without calls, and after some; also of rules whose state has numbers."""
    assert shown in explained(drive(document), {})


@pytest.mark.parametrize(("rule", "fewer", "more"), [
    ({"type": "count", "tool": "a", "max": 2, "of": "completed"}, {"total": 3}, {"total": 4}),
    ({"type": "forbids_after", "tool": "a", "tools": ["b"]}, {"standing": 2}, {"standing": 3}),
], ids=lambda given: given.get("type"))  # fmt: skip
def test_states_with_different_calls_in_flight_have_different_keys(
    rule: dict[str, Any], fewer: dict[str, int], more: dict[str, int]
) -> None:
    """A running call may still fail and not count. Beyond the calls that this can affect, one more makes no
    difference.
    """
    (clause,) = clauses_of(parse_policies({"name": "p", "rules": [rule]})[0])
    machine = clause.machine()
    state = machine.state_type

    def key(figures: dict[str, int], in_flight: int) -> Any:
        return machine.equivalence_key(state(**figures), 4, in_flight=in_flight)

    assert key(fewer, 0) == key(more, 0)
    assert key(fewer, 1) != key(more, 1)
    assert key(more, 1) == key({name: n + 1 for name, n in more.items()}, 1)
