"""Judging a call: one state for all rules, nothing spent by a refusal, approvals bound to the input shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from proctor.policies import (
    Allow,
    Capabilities,
    CompiledPolicy,
    Deny,
    EventError,
    Limits,
    Policy,
    PolicyError,
    RunContext,
    ToolCall,
    compile_policy,
    encode_event,
    merge_policies,
    parse_policies,
    preflight,
)
from proctor.policies import events as ev
from proctor.policies.events.calls import Decision, NeedsChecks
from proctor.policies.language.conditions import Condition
from proctor.policies.language.selectors import ToolWhere
from proctor.policies.rules import Check
from proctor.policies.rules.petri_net import Net, Transition


def grant(session: Any, id: str, digest: str) -> None:
    session.see(ev.ToolApprovalGranted(approval_id=f"a-{id}", tool_call_id=id, input_digest=digest, by="ana"))


def test_every_refusing_rule_is_listed_strictest_first(ruled: Any) -> None:
    """A decision lists all that refuse."""
    session = ruled(
        {"type": "blocklist", "id": "ask", "tools": ["x"], "action": "request_approval"},
        {"type": "blocklist", "id": "no", "tools": ["x"], "action": "deny"},
        {"type": "blocklist", "id": "hm", "tools": ["x"], "action": "warn"},
    )

    assert [v.rule for v in session.propose("x").violations] == ["no", "ask", "hm"]


def test_a_refused_call_spends_nothing(ruled: Any) -> None:
    """A denied call changes no state but attempts and breakers."""
    session = ruled(
        {"type": "count", "id": "one", "tool": "x", "max": 1},
        {"type": "blocklist", "id": "no", "tools": [{"tool": "x", "where": [{"path": "$.bad", "equals": True}]}]},
    )

    assert [session.ask("x", bad=True), session.ask("x"), session.ask("x")] == ["deny", "allow", "deny"]


def test_parallel_siblings_cannot_slip_through_together(ruled: Any) -> None:
    """A call counts from the moment it is allowed."""
    session = ruled({"type": "count", "id": "one", "tool": "x", "max": 1})

    assert [session.ask("x", turn=1), session.ask("x", turn=1)] == ["allow", "deny"]


def test_an_approval_holds_for_one_call_with_one_input(ruled: Any) -> None:
    """Another input needs another approval; the same one is spent when the call is let through."""
    session = ruled({"type": "blocklist", "id": "r", "tools": ["x"], "action": "request_approval"})
    held = session.propose("x", id="h", n=1)
    grant(session, "h", held.input_digest)

    assert session.ask("x", id="h", n=2) == "request_approval"
    assert session.ask("x", id="h", n=1) == "allow"
    assert session.ask("x", id="i", n=1) == "request_approval"


def test_a_granted_call_is_judged_again_on_the_state_of_that_moment(ruled: Any) -> None:
    """What happened since may refuse it."""
    session = ruled(
        {"type": "blocklist", "id": "r", "tools": ["x"], "action": "request_approval"},
        {"type": "never_after", "id": "n", "trigger": "stop", "forbidden": "x"},
    )
    held = session.propose("x", id="h")
    session.ok("stop")
    grant(session, "h", held.input_digest)

    assert session.ask("x", id="h") == "deny"


def test_an_id_used_for_another_call_is_refused(ruled: Any) -> None:
    """Within its run an id stands for one tool with one input."""
    session = ruled()
    session.ok("x", id="k", n=1)

    assert session.ask("x", id="k", n=1) == "allow"
    assert session.ask("x", id="k", n=2) == "deny"
    assert session.ask("y", id="k", n=1) == "deny"


def test_an_unreadable_call_under_a_used_id_leaves_the_first_call_as_it_is(ruled: Any) -> None:
    """It is refused, and its refusal is no failure of the call that runs."""
    session = ruled({"type": "forbids_after", "tool": "x", "tools": ["y"]})
    endless: dict[str, Any] = {}
    endless["all"] = endless
    session.ask("x", id="k")

    session.see(ev.ToolCallRequested(tool_call_id="k", tool_name="x", tool_input=endless))

    assert [session.ask("x", id="k", **endless), session.ask("z", id="k")] == ["deny", "deny"]
    assert session.ask("y") == "deny"


def test_the_same_id_in_another_run_is_another_call(ruled: Any) -> None:
    """Ids are a run's."""
    session = ruled({"type": "count", "id": "r", "tool": "x", "max": 1})
    session.see(ev.RunStarted(run_id="r1"))
    session.ok("x", id="k")
    session.see(ev.RunStarted(run_id="r2"))

    assert session.ask("x", id="k") == "deny"


def test_an_input_that_was_not_the_one_allowed_is_judged_again(ruled: Any) -> None:
    """What starts counts, not what was asked."""
    session = ruled(
        {"type": "blocklist", "id": "r", "tools": [{"tool": "x", "where": [{"path": "$.cmd", "regex": "rm"}]}]}
    )
    session.propose("x", id="k", cmd="ls")
    found = session.see(ev.ToolCallStarted(tool_call_id="k", tool_name="x", tool_input={"cmd": "rm -rf"}, turn=1))

    assert [(v.rule, v.enforcement) for v in found] == [("r", "interrupted")]


def test_outcomes_of_unknown_calls_change_nothing(ruled: Any) -> None:
    """Only a call that started can complete."""
    session = ruled({"type": "before", "id": "r", "first": "A", "then": "B"})
    session.see(ev.ToolCallCompleted(tool_call_id="ghost", tool_name="A"))

    assert session.ask("B") == "deny"


def test_a_call_allowed_here_and_refused_by_the_provider_has_failed(ruled: Any) -> None:
    """It is evidence of nothing."""
    session = ruled({"type": "forbids_after", "id": "r", "tool": "A", "tools": ["B"]})
    session.propose("A", id="a")
    session.see(ev.ToolCallDenied(tool_call_id="a", tool_name="A"))

    assert session.ask("B") == "allow"


def test_the_model_is_told_nothing_of_the_rules(ruled: Any) -> None:
    """The default text names the tool only; the strictest rule's own text comes first."""
    session = ruled(
        {"type": "blocklist", "id": "r", "tools": ["x", "y"], "reason": "security:exfiltration"},
        {"type": "blocklist", "id": "s", "tools": ["y"], "tell_model": "use z", "action": "cancel"},
    )

    assert session.propose("x").tell_model == "Tool 'x' is not available in this context."
    assert session.propose("y").tell_model == "use z"
    assert session.propose("z").tell_model is None


def test_a_rule_that_raises_refuses_and_is_named(drive: Any) -> None:
    """Fail closed."""

    def broken(call: ToolCall) -> bool:
        raise RuntimeError("no database")

    policy = parse_policies({"version": 1, "name": "p", "on_violation": "warn"})[0]
    with_check = type(policy)(name="p", on_violation="warn", rules=(Check(id="c", check=broken),))
    decision = compile_policy(with_check).monitor().propose(ToolCall(id="1", name="x"))

    assert (decision.action, decision.errors) == ("deny", ("c",))


@pytest.mark.parametrize(("answer", "action"), [(True, "allow"), (None, "allow"), (False, "deny"), ("no", "deny")])
def test_a_check_answers_for_itself(answer: Any, action: str) -> None:
    """True or None lets the call through; False or a text refuses."""
    from proctor.policies import Policy

    policy = Policy(name="p", on_violation="deny", rules=(Check(check=lambda call: answer, tool="x"),))

    assert compile_policy(policy).monitor().propose(ToolCall(id="1", name="x")).action == action


def test_an_asynchronous_check_is_asked_outside_and_answered_here() -> None:
    """Without its answer the call is refused."""
    from proctor.policies import Policy

    async def check(call: ToolCall) -> bool:
        return True

    policy = Policy(name="p", on_violation="deny", rules=(Check(id="c", check=check),))
    monitor = compile_policy(policy).monitor()
    call = ToolCall(id="1", name="x")

    needed = monitor.decide(call)
    assert isinstance(needed, NeedsChecks)
    assert [id for id, _ in needed.checks] == ["c"]
    assert monitor.propose(call).action == "deny"
    assert monitor.propose(ToolCall(id="2", name="x"), checks={"c": True}).action == "allow"


def test_the_asynchronous_checks_of_an_input_without_end_are_not_asked() -> None:
    """It is refused at once."""

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


def test_a_repeated_id_in_a_stack_names_its_policy(drive: Any) -> None:
    """`policy/id` where two policies use one id."""
    rule = {"type": "blocklist", "id": "r", "tools": ["x"], "action": "deny"}
    session = drive({"name": "org", "rules": [rule]}, {"name": "team", "rules": [rule]})

    assert [(v.rule, v.policy, v.stack) for v in session.propose("x").violations] == [
        ("org/r", "org", "org + team"),
        ("team/r", "team", "org + team"),
    ]


def test_rules_are_absent_where_their_context_does_not_hold(drive: Any) -> None:
    """`when` is settled when the run starts, and a field not given is absent."""
    rule = {"type": "blocklist", "id": "r", "tools": ["x"], "when": [{"path": "$.labels.env", "equals": "prod"}]}
    document = {"on_violation": "deny", "rules": [rule]}

    assert drive(document).ask("x") == "allow"
    assert drive(document, context=RunContext(labels={"env": "prod"})).ask("x") == "deny"


def test_what_earlier_calls_returned_bounds_what_may_be_asked(ruled: Any) -> None:
    """`output_of` refers to every earlier successful output."""
    source = {"output_of": ["find_user"], "path": "$[*].id"}
    session = ruled(
        {"type": "blocklist", "id": "r", "tools": [{"tool": "mail", "where": [{"path": "$.to", "not_in": source}]}]}
    )
    before = session.ask("mail", to=7)
    session.ok("find_user", out='[{"id": 7}, {"id": "ana"}]')

    assert (before, session.ask("mail", to="7"), session.ask("mail", to="ana"), session.ask("mail", to="eve")) == (
        "deny",
        "allow",
        "allow",
        "deny",
    )


def test_a_net_can_be_added_and_removed_on_a_live_run_and_keeps_its_state(ruled: Any) -> None:
    """A removed net goes on where it was."""
    session = ruled()
    session.monitor.add_net("limit push to 1 per session")
    first = [session.ask("push"), session.ask("push")]
    session.monitor.remove_net("limit push to 1 per session")
    without = session.ask("push")
    session.monitor.add_net("limit push to 1 per session")

    assert (first, without, session.ask("push")) == (["allow", "deny"], "allow", "deny")


@pytest.mark.parametrize(
    ("member", "line"),
    [
        ({"nets": ['map bash.command "git push" as git-push']}, "block git-push"),
        (
            {"virtual_tools": [{"tool": "bash", "path": "$.command", "match": "push", "as": "git-push"}]},
            "block git-push",
        ),
        ({"aliases": {"Shell": ["bash"]}}, "block shell"),
    ],
)
def test_a_net_added_on_a_live_run_knows_the_names_of_every_policy(member: dict[str, Any], line: str) -> None:
    """A name that one member gives, in whatever way, means the same to a net that joins later."""
    stack = [{"version": 1, "name": "org", **member}, {"version": 1, "name": "team"}]
    merged = merge_policies([policy for one in stack for policy in parse_policies(one)])
    monitor = compile_policy(merged).monitor()
    monitor.add_net(line)

    decision = monitor.propose(ToolCall(id="c", name="bash", input={"command": "git push"}))

    assert decision.action == "cancel"


def test_what_is_attached_to_a_net_that_is_not_there_is_an_error() -> None:
    """A misspelt name would be a validator that never runs."""
    [policy] = parse_policies({"version": 1, "name": "p", "nets": ["block rm"]})

    with pytest.raises(PolicyError, match="no net is called `block mv`"):
        compile_policy(policy, validators={"block mv": lambda *_: True})


async def too_late(*_: Any) -> bool:
    return False


@pytest.mark.parametrize("hook", [3, too_late])
def test_what_cannot_be_called_is_not_attached(hook: Any) -> None:
    """An `async` validator would never be waited for."""
    [policy] = parse_policies({"version": 1, "name": "p", "nets": ["block rm"]})

    with pytest.raises(PolicyError, match="not a plain function"):
        compile_policy(policy, validators={"block rm": hook})
    with pytest.raises(PolicyError, match="not a plain function"):
        compile_policy(policy).monitor().add_net("block mv", on_result=hook)


@pytest.mark.parametrize(
    "net",
    [
        "block",
        Net(name="n", places=(), transitions=(Transition(name="t", inputs=("nowhere",), tools=("x",)),)),
        "map bash.command ls as list",
    ],
)
def test_a_net_that_is_wrong_in_itself_is_not_added(net: Any) -> None:
    """What is read from a file is checked no less when it joins a live run."""
    monitor = compile_policy(Policy(name="p")).monitor()
    with pytest.raises(ValueError, match=r"is not a net|has no place|names tools and is not a net"):
        monitor.add_net(net)

    assert monitor.state.program.rules == ()


def test_the_status_of_nets_says_where_they_stand_and_what_they_let_through(drive: Any) -> None:
    """Those that were removed too; in words a prompt can carry."""
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


def test_a_restored_snapshot_is_the_same_bytes(ruled: Any) -> None:
    """In whatever order the state came about."""
    rules = [{"type": "blocklist", "tools": ["push"], "id": name} for name in ("b", "a", "d", "c")]
    session = ruled(*rules, {"type": "count", "tool": "*", "max": 1})
    session.ask("push")
    session.ask("read")
    session.ask("read")
    written = session.monitor.snapshot()

    assert session.compiled.restore(written).snapshot() == written
    assert b'"violated":["a","b","c","count-1","d"]' in written


def test_a_snapshot_of_another_policy_is_refused(ruled: Any) -> None:
    """One clear error, no half-restored state."""
    one, other = (
        ruled({"type": "require", "id": "a", "tool": "x"}),
        ruled({"type": "require", "id": "b", "tool": "x"}),
    )

    with pytest.raises(EventError, match="whose rules differ"):
        other.compiled.restore(one.monitor.snapshot())
    with pytest.raises(EventError, match="not a snapshot"):
        other.compiled.restore(b"{]")


def test_a_decision_explains_itself_with_the_states_before_and_after() -> None:
    """Only where the monitor was asked to explain."""
    policy = parse_policies(
        {"version": 1, "name": "p", "rules": [{"type": "count", "id": "r", "tool": "x", "max": 1, "action": "deny"}]}
    )[0]
    monitor = compile_policy(policy).monitor(explain=True)
    first, second = (monitor.propose(ToolCall(id=str(n), name="x")) for n in range(2))

    assert "r: agrees [total: 0" in first.explain()
    assert "-> total: 1" in first.explain()
    assert "r: deny, `x` would be call number 2" in second.explain()


def test_an_input_that_cannot_be_read_is_refused(ruled: Any) -> None:
    """Deep nesting does not pass by breaking the judge."""
    deep: Any = {}
    for _ in range(100_000):
        deep = {"a": deep}
    session = ruled({"type": "loop", "id": "r", "window": 3, "threshold": 2})
    decision = session.monitor.propose(ToolCall(id="1", name="x", input=deep))

    assert decision.action == "deny"


def test_a_policy_made_in_python_is_checked_when_it_is_compiled() -> None:
    """The same checks as for a file."""
    from proctor.policies import Deny, Policy

    with pytest.raises(PolicyError, match="never closed"):
        compile_policy(Policy(name="p", tool_rules=[Deny(["[ab"])]))


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (
            lambda: compile_policy(Policy(name="p")).monitor().narrow("bash"),
            "expected a list of tools, got the text `bash`",
        ),
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
def test_a_lone_text_is_no_list_of_names(make: Callable[[], object], wrong: str) -> None:
    """Its letters are never taken for names."""
    with pytest.raises(ValueError, match=wrong):
        make()


@pytest.mark.parametrize(
    ("use", "error", "wanted"),
    [
        (lambda m, wrong: m.narrow(wrong), ValueError, "a list of tools"),
        (lambda m, wrong: m.propose(wrong), EventError, "a tool call"),
        (lambda m, wrong: m.tick(wrong), EventError, "milliseconds since the epoch"),
        (lambda m, wrong: m.add_net(wrong), ValueError, "a net"),
        (lambda m, wrong: CompiledPolicy(m.state.program).monitor(wrong), ValueError, "a run context"),
        (lambda m, wrong: preflight(m.state.program.policy, wrong), ValueError, "the capabilities of an adapter"),
        (lambda m, wrong: encode_event(wrong), EventError, "an event"),
        (lambda m, wrong: merge_policies(wrong), PolicyError, "a list of policies"),
        (lambda m, wrong: compile_policy(wrong), PolicyError, "a policy"),
    ],
)
def test_an_argument_of_the_wrong_kind_is_one_clear_error(
    use: Callable[[Any, Any], object], error: type[Exception], wanted: str
) -> None:
    """It names what was expected and what came, and nothing has changed."""
    monitor = compile_policy(Policy(name="p", limits=Limits(max_duration_ms=1_000))).monitor()
    before = monitor.snapshot()

    with pytest.raises(error, match=f"expected {wanted}, got a value of type `object`"):
        use(monitor, object())
    assert monitor.snapshot() == before


@pytest.mark.parametrize("data", [None, b"{}", b"[1]", b"\xff"])
def test_what_is_no_snapshot_is_one_clear_error(data: Any) -> None:
    """Whatever it is."""
    with pytest.raises(EventError, match="not a snapshot of a monitor"):
        compile_policy(Policy(name="p")).restore(data)


def test_a_validator_is_asked_only_where_no_net_refuses() -> None:
    """Whatever the order of the nets; what a net only asks a person about is validated all the same."""
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


def test_what_a_rule_has_given_up_hides_no_tool(drive: Any) -> None:
    """A call that did not come in time is a violation once; after that the rule restricts nothing."""
    session = drive({"rules": [{"type": "eventually", "tool": "plan", "within": 2, "action": "deny"}]})
    session.ok("read")
    due = session.visible("plan", "read")
    session.saw("read")

    assert (due, session.visible("plan", "read")) == (["plan"], ["plan", "read"])


def explained(session: Any, *calls: dict[str, Any]) -> str:
    """The explanation of the last of these calls of x."""
    monitor = session.compiled.monitor(explain=True)
    decisions = [monitor.propose(ToolCall(id=str(n), name="x", input=input)) for n, input in enumerate(calls)]
    return str(decisions[-1].explain())


@pytest.mark.parametrize(("values", "more"), [(6, ""), (7, "; 1 more"), (9, "; 3 more")])
def test_an_explanation_shows_a_few_instances_and_counts_the_others(ruled: Any, values: int, more: str) -> None:
    """A model can make very many. The last call's is not there yet."""
    session = ruled({"type": "count", "id": "r", "tool": "x", "max": 1, "key": "$.id"})
    explanation = explained(session, *({"id": f"v{n}"} for n in range(values)))
    before = explanation.partition("[")[2].partition(" -> ")[0]

    assert before == "; ".join(f"v{n}: total: 1, attempts: 0, turns: 0, forgotten: 0" for n in range(5)) + more


def test_an_explanation_counts_what_a_rule_remembers_of_calls(ruled: Any) -> None:
    """It shows figures, not the calls."""
    session = ruled({"type": "loop", "id": "r", "window": 9, "threshold": 5})
    explanation = explained(session, *[{"text": "hidden"}] * 3)

    assert "r: agrees [recent: 2 -> recent: 3]" in explanation


def test_an_explanation_names_a_limit_that_refuses(drive: Any) -> None:
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
    """It would wait for nothing."""
    net = {"name": "n", "places": ["a"], "transitions": [{"name": "t", "outputs": ["a"], "deferred": True}]}

    with pytest.raises(PolicyError, match="names the tools it waits for"):
        parse_policies({"version": 1, "name": "p", "nets": [net]})


def test_an_unknown_price_that_is_rejected_is_named(drive: Any) -> None:
    """With what is lacking as data."""
    session = drive({"limits": {"max_cost_usd": 1}, "unpriced": "reject"})
    (violation,) = session.see(ev.TokenUsageUpdated(model="nobody-knows", input_tokens=1))

    assert (violation.details["limit"], violation.details["max"]) == ("max_cost_usd", 1)
    assert violation.details["unpriced"] == ["nobody-knows"]
    assert "there is no price for nobody-knows" in violation.message


@pytest.mark.parametrize(
    ("document", "shown"),
    [
        (
            {"rules": [{"type": "forbidden_sequence", "id": "r", "sequence": ["x", "y"]}]},
            "[prefixes: 0, at: 0 -> prefixes: 1, at: 1]",
        ),
        ({"nets": ["limit x to 1 per session"]}, "[budget: 1 -> no token]"),
    ],
)
def test_an_explanation_shows_where_a_rule_stood_and_stands(drive: Any, document: Any, shown: str) -> None:
    """Before any call, and after it."""
    assert shown in explained(drive(document), {})


def test_what_a_stored_record_says_of_the_end_of_a_run_is_open_again(ruled: Any) -> None:
    """A rule that only an end violates is met by what comes later."""
    session = ruled({"type": "require", "id": "r", "tool": "x"})
    session.see(ev.PolicyViolated(policy="p", rule="r", kind="require", action="deny", message="x was not called"))
    session.ok("x")

    assert session.end().rules["r"].status == "held"
