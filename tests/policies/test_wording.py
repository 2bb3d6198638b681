"""What rules and limits say: to people, and by the cause, with no word of the rules, to the model."""

import json
from typing import Any

import msgspec
import pytest

from proctor.policies import Condition, Decision, ToolCall, compile_policy, decode_event, parse_policies
from proctor.policies import events as ev
from proctor.policies.language.predicates import condition_words
from proctor.policies.values.amounts import figure

NOT_SO = "Tool 'bash' may not be used with this input."
NOT_YET = "Tool 'bash' may not be used yet."


@pytest.mark.parametrize(("policy", "call", "message", "tell_model"), [
    (r"tool_rules: [{deny: [ls, {tool: bash, where: [{path: $.command, regex: '\brm\b'}]}]}]",
        {"command": "rm -r old"}, r"`bash` was requested, and `$.command` matches `\brm\b`", NOT_SO),
    ("tool_rules: [{deny: [{tool: b*, where: [{any_of: [{path: $.n, gt: 5, lt: 9}]}]}]}]", {"n": 7},
        "`bash` was requested, and (`$.n` is more than `5` and is less than `9`)", NOT_SO),
    ("tool_rules: [{allow: [ls, {tool: bash, where: [{path: $.n, in: [1, 2]}]}]}]", {"n": 3},
        "`bash` is allowed only where `$.n` is one of `[1,2]`", NOT_SO),
    ("rules: [{type: precondition, tool: bash, requires: [{prior: [a, b], same: [{path: $.n}]}]}]", {},
        "`bash` was requested without a completed call of `a` or `b` for the same `$.n`", NOT_YET),
    ("rules: [{type: precondition, tool: bash, requires: [{prior: ls, description: look}]}]", {},
        "`bash` was requested, which requires: look", NOT_YET),
])  # fmt: skip
def test_a_rule_says_what_about_a_call_it_refuses(policy: str, call: Any, message: str, tell_model: str) -> None:
    """To the operator: the condition it met. The model is told what kind of refusal it is, and nothing of that."""
    compiled = compile_policy(parse_policies(f"name: p\non_violation: deny\n{policy}")[0])
    decision = compiled.monitor().propose(ToolCall(id="1", name="bash", input=call))

    assert [violation.details["actual"] for violation in decision.violations] == [message]
    assert decision.tell_model == tell_model


COMMANDS = ["ls", "cat", "git status", "git diff", "npm test", "make", "ruff", "mypy"]


DENIED = "`bash` was requested, and `$.command` would run "
LIST = "`ls` or `cat` or `git status` or `git diff` or `npm test` or one of 3 others"


@pytest.mark.parametrize(
    ("listed", "line", "message"),
    [
        ("deny", "cd x && git diff", f"{DENIED}`git diff` (got `cd x && git diff`)"),
        ("deny", "make; ls -l", f"{DENIED}`ls` or `make` (got `make; ls -l`)"),
        ("deny", "$X", f"{DENIED}{LIST} (got `$X`)"),
        ("allow", "ls && touch x", "`bash` would run `touch`, which the allow list does not name"),
        ("allow", "git push; git push", "`bash` would run `git push`, which the allow list does not name"),
        (
            "allow",
            "eval $X > y",
            "`bash` would run `eval` and what is known only when it runs and a `redirect` into a file, "
            "which the allow list does not name",
        ),
        ("allow", 7, f"`bash` is allowed only where `$.command` would run {LIST} (got `7`)"),
    ],
)
def test_of_a_list_of_commands_a_message_names_those_that_decide(listed: str, line: Any, message: str) -> None:
    """What a denied line would run, and what an allow list lacks; a long list is named by how it begins."""
    entry = {"tool": "bash", "where": [{"path": "$.command", "runs": COMMANDS}]}
    compiled = compile_policy(
        parse_policies({"name": "p", "on_violation": "deny", "tool_rules": [{listed: [entry]}]})[0]
    )
    decision = compiled.monitor().propose(ToolCall(id="1", name="bash", input={"command": line}))

    assert [violation.message for violation in decision.violations] == [message]


def test_of_alternatives_a_message_names_those_that_are_met() -> None:
    """The value once, though two conditions look at it."""
    where = [
        {"any_of": [{"path": "$.command", "runs": ["rm", "dd"]}, {"path": "$.command", "regex": "secret"}]},
        {"path": "$.command", "contains": "x"},
    ]
    rules = [{"deny": [{"tool": "bash", "where": where}]}]
    compiled = compile_policy(parse_policies({"name": "p", "on_violation": "deny", "tool_rules": rules})[0])
    decision = compiled.monitor().propose(ToolCall(id="1", name="bash", input={"command": "rm x"}))

    message = "`bash` was requested, and (`$.command` would run `rm`) and `$.command` contains `x` (got `rm x`)"
    assert [violation.message for violation in decision.violations] == [message]


@pytest.mark.parametrize(("condition", "words"), [
    ({"path": "$.a", "equals": "x"}, "`$.a` is `x`"),
    ({"path": "$.a", "not_equals": None}, "`$.a` is not `null`"),
    ({"path": "$.a", "exists": True}, "`$.a` is given"),
    ({"path": "$.a", "exists": False}, "`$.a` is not given"),
    ({"path": "$.a[*]", "contains": "b" * 70, "at_least": 2}, f"`$.a[*]` contains `{'b' * 57}...` 2 times"),
    ({"path": "$.a", "equals": {"arg": "$.b"}}, "`$.a` is the call's `$.b`"),
    ({"path": "$.a", "in": {"output_of": ["f", "g"], "path": "$.id"}}, "`$.a` is one of what `f` or `g` returned"),
    ({"any_of": [{"path": "$.a", "lte": 1}, {"path": "$.a", "type": "null"}]}, "(`$.a` is at most `1` or "),
])  # fmt: skip
def test_conditions_are_put_in_words(condition: Any, words: str) -> None:
    """As they are written, operand and all; long operands are cut."""
    assert condition_words([msgspec.convert(condition, Condition)]).startswith(words)


def test_large_amounts_are_written_in_full() -> None:
    """Not as a power of ten."""
    policy = parse_policies({"name": "p", "limits": {"max_total_tokens": 12_000_000, "max_cost_usd": 0.5}})[0]
    monitor = compile_policy(policy).monitor()
    found = monitor.observe(ev.TokenUsageUpdated(run_id="r", input_tokens=12_345_678, cost_usd=0.75))

    assert [(v.message, v.details["expected"]) for v in found] == [
        ("12,345,678 tokens", "at most 12,000,000 tokens in one run"),
        ("$0.75", "at most $0.50 in one run"),
    ]


@pytest.mark.parametrize(("amount", "shown"), [
    (0, "0"),
    (10, "10"),
    (5000.0, "5,000"),
    (0.25, "0.25"),
    (1.0000004, "1"),
    (3e-9, "3e-09"),
    (12_345_678, "12,345,678"),
])  # fmt: skip
def test_amounts_are_written_as_they_are_read(amount: float, shown: str) -> None:
    """Whole numbers in full, and no amount as none."""
    assert figure(amount) == shown


def test_a_call_that_one_of_its_transitions_may_later_let_through_is_worded_as_not_yet() -> None:
    """What the other one takes never comes."""
    net = {
        "name": "n",
        "places": ["given", "never"],
        "transitions": [
            {"name": "some", "inputs": ["given"], "tools": ["bash"]},
            {"name": "none", "inputs": ["never"], "tools": ["bash"]},
            {"name": "give", "outputs": ["given"], "tools": ["ls"]},
        ],
    }
    monitor = compile_policy(parse_policies({"name": "p", "on_violation": "deny", "nets": [net]})[0]).monitor()

    assert monitor.propose(ToolCall(id="1", name="bash")).tell_model == NOT_YET


def test_a_value_without_a_call_says_that_no_call_came_before() -> None:
    """Calls about other values are none."""
    rule = {"type": "immediately_before", "first": "x", "then": "z", "key": "$.of"}
    monitor = compile_policy(parse_policies({"name": "p", "on_violation": "deny", "rules": [rule]})[0]).monitor()
    monitor.propose(ToolCall(id="1", name="x", input={"of": "a"}, turn=1))
    (violation,) = monitor.propose(ToolCall(id="2", name="z", input={"of": "b"}, turn=2)).violations

    assert violation.message.startswith("no call came before")


def test_a_message_has_the_position_the_values_and_what_the_author_says() -> None:
    """A condition that stands in the sentence is not said twice; the model is told none of it."""
    policy = """
        name: p
        on_violation: deny
        limits: {max_tool_calls: {max: 2, description: One is enough.}}
        tool_rules:
        - {deny: [{tool: bash, where: [{path: $.command, contains: rm}]}], description: Nothing is removed.}
        rules:
        - {id: order, type: before, first: test, then: deploy, description: Tests come first.}
        - {id: never, type: never_after, trigger: read, forbidden: deploy}
        - {id: paid, type: precondition, tool: ship, requires: [{prior: pay, output: [{path: $.ok, equals: true},
           {path: $.by, in: [a]}]}]}
    """
    monitor = compile_policy(parse_policies(policy)[0]).monitor()
    for id, name in (("1", "read"), ("2", "pay")):
        call = {"run_id": "r", "session_id": "s", "tool_call_id": id, "tool_name": name}
        for event in (
            {"type": "tool_call_started", "tool_input": {}},
            {"type": "tool_call_completed", "tool_output": {"ok": False}},
        ):
            assert not monitor.observe(decode_event(json.dumps({**call, **event}).encode()))

    def messages(id: str, name: str, **input: Any) -> dict[str, str]:
        decision = monitor.propose(ToolCall(id=id, name=name, input=input))
        assert not any("first" in (each.tell_model or "") for each in decision.violations)
        return {violation.rule: violation.message for violation in decision.violations}

    deploy = messages("3", "deploy")
    assert deploy["order"] == "`deploy` was requested, but `test` never completed (call 3): Tests come first."
    assert deploy["never"] == "`deploy` was requested after `read` (call 3)"
    assert deploy["max_tool_calls"].endswith(": One is enough.")
    removed = messages("4", "bash", command="rm x")["deny-1"]
    assert removed == "`bash` was requested, and `$.command` contains `rm` (got `rm x`): Nothing is removed."
    paid = messages("5", "ship")["paid"]
    assert '(call 3; `$.ok` is `true`, got `false`; `$.by` is one of `["a"]`, got no value)' in paid


def details_of(decision: Decision, rule: str) -> dict[str, Any]:
    return next(v.details for v in decision.violations if v.rule == rule)


@pytest.mark.parametrize(("carried", "of_what_ran"), [
    ({"action": "cancel"}, "interrupted"), ({}, "interrupted"), ({"unpreventable": "warn"}, "observed"),
    ({"action": "request_approval"}, "observed"),
])  # fmt: skip
def test_a_violation_says_how_far_a_list_reached(drive: Any, carried: dict[str, str], of_what_ran: str) -> None:
    """Before a call, and where one ran that nobody had asked about."""
    session = drive({"on_violation": "deny", "tool_rules": [{"deny": ["x"], **carried}]})
    (proposed,), (ran,) = session.propose("x").violations, session.saw("x")

    assert (proposed.enforcement, ran.enforcement) == ("prevented", of_what_ran)


def test_a_violation_says_when_it_was(drive: Any) -> None:
    """The response, and how many calls came before."""
    session = drive({"on_violation": "deny", "tool_rules": [{"deny": ["x"]}], "limits": {"max_total_tokens": 1}})
    session.ok("y", turn=1)
    session.ok("y", turn=2)
    details = details_of(session.propose("x", turn=3), "deny-1")
    (limit,) = session.see(ev.TokenUsageUpdated(input_tokens=2))

    assert (details["turn"], details["sequence_length"]) == (3, 2)
    assert (limit.details["turn"], limit.details["sequence_length"]) == (3, 2)


@pytest.mark.parametrize(("listed", "texts", "input", "conditions"), [
    ("deny", [{"path": "$.o", "gt": 5}, {"path": "$.t", "regex": "^/etc"}], {"o": 7, "t": "/etc/passwd"},
        [("`$.o` is more than `5`", True, 7), ("`$.t` matches `^/etc`", True, "/etc/passwd")]),
    ("allow", [{"path": "$.o", "lte": 5}, {"path": "$.t[*]", "regex": "^a"}], {"o": 5, "t": ["a", "b" * 300]},
        [("`$.o` is at most `5`", True, 5), ("`$.t[*]` matches `^a`", False, ["a", "b" * 200 + "..."])]),
])  # fmt: skip
def test_a_violation_says_which_condition_held_for_which_value(
    drive: Any, listed: str, texts: Any, input: Any, conditions: Any
) -> None:
    """Of the item that names the call, also where one of them failed; a long value by its beginning."""
    session = drive({"on_violation": "deny", "tool_rules": [{listed: [{"tool": "x", "where": texts}]}]})
    details = details_of(session.propose("x", **input), f"{listed}-1")

    assert [(c["condition"], c["holds"], c["value"]) for c in details["conditions"]] == conditions


@pytest.mark.parametrize("operand", [True, {"arg": "$.ok"}])
def test_a_violation_says_what_an_earlier_call_returned_instead(drive: Any, operand: Any) -> None:
    """Whether the condition is settled when the call returns, or depends on the judged call."""
    requires = [{"prior": "y", "output": [{"path": "$.ok", "equals": operand}]}]
    session = drive({"on_violation": "deny", "rules": [{"type": "precondition", "tool": "x", "requires": requires}]})
    first = details_of(session.propose("x", ok=True), "precondition-1")
    session.ok("y", {"ok": "no"})
    details = details_of(session.propose("x", ok=True), "precondition-1")

    assert "conditions" not in first
    assert [(c["holds"], c["value"]) for c in details["conditions"]] == [(False, "no")]
