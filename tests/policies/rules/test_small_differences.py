"""Regression tests found by mutation: each would fail after the change of one line."""

from typing import Any

import pytest

from proctor.policies import RunContext, ToolCall, compile_policy, merge_policies, parse_policies, preflight
from proctor.policies import events as ev
from proctor.policies.events.calls import NeedsChecks, mark, matches_digest, same_input
from proctor.policies.events.run_context import Tool
from proctor.policies.limits import Limits
from proctor.policies.monitor.monitor import ListAdmission
from proctor.policies.policy import Approval, Deny, Policy
from proctor.policies.rules.petri_net import Net, Transition
from proctor.policies.rules.python_check import Check, CheckContext


def monitor(*rules: dict[str, Any], **fields: Any) -> Any:
    return compile_policy(merge_policies(parse_policies({"name": "p", "rules": list(rules), **fields}))).monitor()


def done(of: Any, id: str, tool: str, input: dict[str, Any], turn: int = 1) -> None:
    of.observe(ev.ToolCallStarted(tool_call_id=id, tool_name=tool, tool_input=input, turn=turn))
    of.observe(ev.ToolCallCompleted(tool_call_id=id, tool_name=tool, tool_output={"ok": True}))


@pytest.mark.parametrize(("one", "other", "same"), [
    ({"a": True}, {"a": 1}, False),
    ({"a": [False]}, {"a": [0]}, False),
    ({"a": 1}, {"a": 1.0}, True),
    ({"a": [[1], {"b": 7}]}, {"a": [[1.0], {"b": 7.0}]}, True),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
    ({"a": 1}, {"a": 2}, False),
])  # fmt: skip
def test_true_and_1_are_different_inputs_of_a_call(one: dict[str, Any], other: dict[str, Any], same: bool) -> None:
    """While the call is in flight, and after its end, when only its digest is stored."""
    assert same_input(one, other) == same
    assert matches_digest(mark("t", one), "t", other) == same


def test_each_tool_of_a_prior_has_its_own_conditions() -> None:
    """A second requirement and a second tool have slots of their own."""
    rule = {
        "type": "precondition",
        "tool": "pay",
        "requires": [
            {"prior": "identify"},
            {"prior": [{"tool": "look", "where": [{"path": "$.x", "equals": 1}]}, "ask"]},
        ],
    }
    for calls, answer in (
        ([("identify", {}), ("look", {"x": 1})], "allow"),
        ([("identify", {}), ("ask", {})], "allow"),
        ([("identify", {}), ("look", {"x": 2})], "cancel"),
        ([("look", {"x": 1}), ("ask", {})], "cancel"),
    ):
        of = monitor(rule)
        for n, (tool, input) in enumerate(calls):
            done(of, str(n), tool, input)
        assert of.propose(ToolCall(id="pay", name="pay")).action == answer, calls


def test_a_turn_at_the_edge_of_the_window_still_counts() -> None:
    """The last turn within the window allows the call, the first beyond it denies it."""
    rule = {"type": "count", "tool": "t", "max": 1, "within_turns": 2}
    for turn, refused in ((100, False), (68, False), (67, True), (60, True)):
        of = monitor(rule)
        done(of, "old", "t", {}, turn=66)
        done(of, "new", "u", {}, turn=100)
        done(of, "newer", "t", {}, turn=100)
        found = of.observe(ev.ToolCallStarted(tool_call_id="late", tool_name="t", tool_input={}, turn=turn))
        assert bool([v for v in found if "forgotten" in v.message]) == refused, turn


def test_a_check_gets_exactly_as_many_calls_as_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proctor.policies.rules.python_check.BOUND", 3)
    counts: list[int] = []

    def look(call: ToolCall, context: CheckContext) -> bool:
        counts.append(len(context.calls))
        return True

    of = compile_policy(Policy(name="p", rules=[Check(look)])).monitor(RunContext())
    answers = [of.propose(ToolCall(id=str(n), name="t")).action for n in range(3)]
    for n in range(3, 7):  # beyond the bound, earlier calls may have happened
        of.observe(ev.ToolCallStarted(tool_call_id=str(n), tool_name="t", tool_input={}, turn=1))

    assert answers == ["allow"] * 3
    assert counts == [0, 1, 2]
    assert len(of.state.states[0].calls) == 3
    assert of.propose(ToolCall(id="more", name="t")).action == "cancel"


def test_a_check_without_the_context_stores_no_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """So it evaluates any number of them."""
    monkeypatch.setattr("proctor.policies.rules.python_check.BOUND", 3)
    of = compile_policy(Policy(name="p", rules=[Check(lambda call: True)])).monitor(RunContext())

    assert [of.propose(ToolCall(id=str(n), name="t")).action for n in range(5)] == ["allow"] * 5


def test_a_transition_with_two_input_tokens_can_fire_half_as_often() -> None:
    """Preflight's maximum is what the net allows. Without input tokens there is no maximum."""
    for tokens, often in ((4, 2), (5, 2), (6, 3), (0, 0)):
        taking = Transition(name="t", inputs=("p", "p"), tools=("x",))
        net = Net(name="n", places=("p",), initial_marking={"p": tokens} if tokens else {}, transitions=(taking,))
        of = compile_policy(Policy(name="p", nets=[net])).monitor(RunContext())

        assert [cap.most for cap in net.profile().caps] == [often]
        assert [of.propose(ToolCall(id=str(n), name="x")).action for n in range(often)] == ["allow"] * often
        assert of.propose(ToolCall(id="more", name="x")).action == "cancel"


@pytest.mark.parametrize("unpriced", ["warn", "reject"])
@pytest.mark.parametrize(("counts", "needs"), [
    (["max_cost_usd"], True),
    (["max_tool_calls"], False),
    (["max_tool_calls", "max_cost_usd"], True),
    (["max_cost_usd", "max_running"], True),
])  # fmt: skip
def test_only_a_cost_budget_needs_prices(counts: list[str], needs: bool, unpriced: str) -> None:
    """With other budgets, a model without a price is no finding; where it may have none, neither."""
    budgets = [{"name": count, count: 5} for count in counts]
    stack = merge_policies(parse_policies({"name": "p", "unpriced": unpriced, "budgets": budgets}))
    of = compile_policy(stack).monitor(RunContext())
    of.observe(ev.RunStarted(run_id="r"))

    assert compile_policy(stack).budgets.needs_prices == needs
    assert (compile_policy(stack).prices is not None) == needs
    assert bool(of.observe(ev.TokenUsageUpdated(model="nobody-knows", input_tokens=1))) == (
        needs and unpriced == "reject"
    )


def test_disjoint_approvers_are_a_finding() -> None:
    """It names the approvers of each policy."""

    def findings(*approvers: tuple[str, ...] | None) -> list[str]:
        members = [Policy(name=f"p{n}", approval=Approval(approvers=who)) for n, who in enumerate(approvers)]
        return [f.message for f in preflight(merge_policies(members)) if f.code == "no_approver"]

    (message,) = findings(("alice",), ("bob",))
    assert "p0: alice" in message
    assert "p1: bob" in message
    assert findings(("alice",), ("bob", "alice")) == []
    assert findings(("alice",), None) == []
    assert findings(()) != []


@pytest.mark.parametrize("turn", [0, 1, 3, 9])
def test_listing_the_checks_for_a_call_changes_nothing(turn: int) -> None:
    """In a session's first run and in a later one, whose turn number is not known yet."""

    async def look(call: ToolCall) -> bool:
        return True

    of = compile_policy(Policy(name="p", rules=[Check(look)])).monitor(RunContext())
    for run in ("a", "b"):
        of.observe(ev.RunStarted(run_id=run))
        of.observe(ev.ToolCallRequested(tool_call_id="1", tool_name="t", tool_input={}, turn=turn))
        before = of.snapshot()
        needed = of.decide(ToolCall(id="1", name="t", turn=turn))
        assert isinstance(needed, NeedsChecks)
        assert len(needed.checks) == 1
        assert of.snapshot() == before
        of.observe(ev.TurnStarted(turn=3))


def test_turns_of_earlier_runs_hide_no_tool() -> None:
    """The turn limit of a run counts its own turns. After the last one, narrowing hides everything."""
    of = compile_policy(Policy(name="p", limits=Limits(max_turns=2))).monitor(RunContext())
    shown = []
    for run in ("a", "b"):
        of.observe(ev.RunStarted(run_id=run))
        for turn in (1, 2):
            of.observe(ev.TurnStarted(run_id=run, turn=turn))
            shown.append(of.narrow(["t"]))
            of.observe(ev.TurnCompleted(run_id=run, turn=turn))
            shown.append(of.narrow(["t"]))

    assert shown == [["t"], ["t"], ["t"], []] * 2


@pytest.mark.parametrize(("held", "status"), [(True, "violated"), (False, "held")])
def test_an_approval_request_that_only_signals_holds_no_call(held: bool, status: str) -> None:
    """If the agent's calls can't be held, the missing answer is not the reason why a call did not run."""
    policy = Policy(name="p", tool_rules=[Deny(("x",), id="ask", action="request_approval")])
    of = compile_policy(policy).monitor(RunContext())
    of.observe(ev.ToolCallRequested(tool_call_id="c", tool_name="x"))
    asks = ({"policy": "p", "rule": "ask"},)
    of.observe(ev.ToolApprovalRequested(tool_call_id="c", tool_name="x", approval_id="a", held=held, violations=asks))
    of.observe(ev.ToolCallDenied(tool_call_id="c", tool_name="x"))

    assert of.finish().rules["ask"].status == status


def test_an_approval_granted_before_its_call_was_seen_counts_once() -> None:
    """As after a restart: for that id, tool and input, and for no other."""
    policy = Policy(name="p", tool_rules=[Deny(("x", "y"), id="ask", action="request_approval")])
    first = compile_policy(policy).monitor(RunContext()).propose(ToolCall(id="c", name="x", input={"a": 1}))
    for call, answer in (
        (ToolCall(id="c", name="x", input={"a": 1}), "allow"),
        (ToolCall(id="c", name="x", input={"a": 2}), "request_approval"),
        (ToolCall(id="c", name="y", input={"a": 1}), "request_approval"),
        (ToolCall(id="d", name="x", input={"a": 1}), "request_approval"),
    ):
        of = compile_policy(policy).monitor(RunContext())
        of.observe(
            ev.ToolApprovalGranted(approval_id="a", tool_call_id="c", tool_name="x", input_digest=first.input_digest)
        )
        assert of.propose(call).action == answer, call


@pytest.mark.parametrize(("conditions", "admitted"), [
    ([{"path": "$.command", "runs": ["git", "ls"]}], True),
    ([{"path": "$.command", "runs": ["git", "ls"]}, {"path": "$.command", "regex": "^git"}], True),
    ([{"path": "$.command", "regex": "^git"}], False),
    ([{"any_of": [{"path": "$.command", "runs": ["git"]}, {"path": "$.command", "regex": "^git"}]}], False),
    ([{"any_of": [{"path": "$.command", "runs": ["git", "ls"]}, {"path": "$.command", "runs": ["ls"]}]}], True),
    ([], True),
])  # fmt: skip
def test_an_allow_list_allows_several_commands_if_one_condition_matches_them_all(
    conditions: list[dict[str, Any]], admitted: bool
) -> None:
    """Whatever else the entry requires."""
    entry = {"tool": "bash", "where": conditions} if conditions else "bash"
    policy = merge_policies(parse_policies({"name": "p", "tool_rules": [{"allow": [entry]}]}))
    call = ToolCall(id="c", name="bash", input={"command": "git status && ls"})

    assert bool(compile_policy(policy).monitor().admission(call).rules) == admitted


@pytest.mark.parametrize(("tool", "input", "why"), [
    ("bash", {"command": "ls; $X"}, "what its command line runs is known only when it runs"),
    ("bash", {"command": " "}, "what its command line runs is known only when it runs"),
    ("bash", {"command": "# nothing"}, "what its command line runs is known only when it runs"),
    ("bash", {"command": ["ls"]}, "its command line cannot be read"),
    ("bash", {}, "its command line cannot be read"),
    ("shell", {"command": "ls", "host": "far"}, "not all of its input can be read"),
    ("bash", [], "its input cannot be read"),
])  # fmt: skip
def test_an_allow_list_allows_no_unreadable_call(tool: str, input: Any, why: str) -> None:
    """Although it has the tool's own name."""
    policy = merge_policies(parse_policies({"name": "p", "tool_rules": [{"allow": ["shell", "bash"]}]}))
    shell = Tool(name="shell", acts=("bash",), takes=("command",), inferred=True)
    monitor = compile_policy(policy, tools=[shell]).monitor()
    read = monitor.admission(ToolCall(id="c", name=tool, input={"command": "ls"}))

    assert (bool(read.rules), read.unread) == (True, False)
    assert monitor.admission(ToolCall(id="c", name=tool, input=input)) == ListAdmission(why_not=why, unread=True)


@pytest.mark.parametrize(("acts", "admitted"), [(("bash",), True), (("bash", "write"), False)])
def test_a_condition_on_the_command_does_not_allow_a_tool_with_other_acts(
    acts: tuple[str, ...], admitted: bool
) -> None:
    """It covers only a part of the call."""
    entry = {"tool": "shell", "where": [{"path": "$.command", "regex": "^git"}]}
    policy = merge_policies(parse_policies({"name": "p", "tool_rules": [{"allow": [entry]}]}))
    compiled = compile_policy(policy, tools=[Tool(name="shell", acts=acts)])
    call = ToolCall(id="c", name="shell", input={"command": "git status", "path": "x", "content": "y"})

    admission = compiled.monitor().admission(call)

    assert (bool(admission.rules), admission.unread) == (admitted, False)


@pytest.mark.parametrize(
    ("musts", "weakest"), [(["started", "completed"], "started"), (["completed"] * 2, "completed")]
)
def test_the_weakest_alternative_of_a_requirement_counts(musts: list[str], weakest: str) -> None:
    """A started call can satisfy an alternative that says so, whatever the others require."""
    priors = [{"prior": tool, "must": must} for tool, must in zip("ab", musts, strict=True)]
    rule = {"type": "precondition", "tool": "x", "requires": [{"any_of": priors}]}
    [[outline]] = [rule.profile().abstraction for rule in parse_policies({"name": "p", "rules": [rule]})[0].rules]

    assert f"first_must='{weakest}'" in str(outline)


NAMED = ["pytest", "cd", "cd --help", "ls", "timeout", "bash"]
PYTEST = {"tool": "bash", "where": [{"path": "$.command", "runs": NAMED}]}


@pytest.mark.parametrize(("line", "proves"), [
    *((line, True) for line in (
        "pytest -q", "cd lib && pytest -q 2>&1", "(cd lib && pytest) &&\n ls", "timeout 9 pytest", "pytest # tests",
        "CI=1 pytest -k 'a || b';", "ls -l -h", "pytest -k help", "cd --help",
    )),
    *((line, False) for line in (
        "pytest &", "! pytest", "f() { pytest; }", "for i in; do pytest; done", "case a in b) pytest;; esac",
        "if pytest; then ls; fi", "pytest || ls", "pytest | ls", "pytest; ls", "pytest\nls", "ls $(pytest)",
        "bash -c 'pytest; ls'", "until pytest; do ls; done",
        "pytest --version", "pytest -h", "pytest -V", "pytest -q tests --co", "pytest --collect-only", "ls --help",
        "cd lib && pytest --help", "timeout 9 pytest --version",
    )),
])  # fmt: skip
@pytest.mark.parametrize("clause", [
    {"rules": [{"type": "before", "first": PYTEST, "then": "ship"}]},
    {"rules": [{"type": "precondition", "tool": "ship", "requires": [{"prior": PYTEST}]}]},
    {"nets": [{"name": "n", "places": ["ok"], "transitions": [
        {"name": "test", "outputs": ["ok"], "tools": [PYTEST], "deferred": True},
        {"name": "ship", "inputs": ["ok"], "tools": ["ship"]}]}]},
])  # fmt: skip
def test_a_line_is_evidence_only_if_its_success_proves_that_of_its_commands(
    clause: dict[str, Any], line: str, proves: bool
) -> None:
    """In the other lines a command may fail, or never run, and the line succeeds. An allow list allows
    all of them.
    """
    session = monitor(**{"on_violation": "deny", **clause})
    done(session, "c1", "bash", {"command": line})

    assert session.propose(ToolCall(id="c2", name="ship", input={}, turn=2)).action == ("allow" if proves else "deny")
    assert (
        monitor(tool_rules=[{"allow": [PYTEST]}])
        .decide(ToolCall(id="c", name="bash", input={"command": line}, turn=1))
        .action
        == "allow"
    )


@pytest.mark.parametrize("rule", [
    {"type": "require", "tool": PYTEST},
    {"type": "eventually", "tool": PYTEST, "within": 9},
    {"type": "after", "trigger": "edit", "then": PYTEST},
    {"type": "before", "first": PYTEST, "then": "ship", "first_must": "started"},
    {"type": "immediately_before", "first": PYTEST, "then": "ship"},
])  # fmt: skip
@pytest.mark.parametrize(("line", "status"), [("pytest; ls", "held"), ("pytest --version", "violated")])
def test_a_command_that_only_prints_its_version_does_not_satisfy_a_rule(
    rule: dict[str, Any], line: str, status: str
) -> None:
    """Whether it succeeds or fails."""
    session = monitor(on_violation="warn", rules=[{"id": "r", **rule}])
    done(session, "c1", "edit", {})
    done(session, "c2", "bash", {"command": line})
    done(session, "c3", "ship", {})

    assert session.finish().rules["r"].status == status
