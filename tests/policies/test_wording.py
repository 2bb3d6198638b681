"""What rules and limits say to people."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from proctor.policies import ToolCall, compile_policy, decode_event, parse_policies
from proctor.policies import events as ev
from proctor.policies.language.conditions import Condition
from proctor.policies.language.predicates import condition_words
from proctor.policies.values.amounts import figure

NOT_HERE = "Tool 'bash' is not available in this context."
INPUT = "Tool 'bash' may not be used with this input."
NOT_YET = "Tool 'bash' may not be used yet."


@pytest.mark.parametrize(
    ("policy", "call", "message", "tell_model"),
    [
        (
            {
                "tool_rules": [
                    {"deny": ["ls", {"tool": "bash", "where": [{"path": "$.command", "regex": r"\brm\b"}]}]}
                ]
            },
            {"command": "rm -r old"},
            r"`bash` was requested, and `$.command` matches `\brm\b`",
            INPUT,
        ),
        (
            {"tool_rules": [{"deny": [{"tool": "b*", "where": [{"any_of": [{"path": "$.n", "gt": 5, "lt": 9}]}]}]}]},
            {"n": 7},
            "`bash` was requested, and (`$.n` is more than `5` and is less than `9`)",
            INPUT,
        ),
        (
            {
                "virtual_tools": [{"tool": "bash", "path": "$.command", "match": "git push", "as": "push"}],
                "tool_rules": [{"deny": ["push"]}],
            },
            {"command": "git push"},
            "`bash` was requested as `push`",
            INPUT,
        ),
        ({"tool_rules": [{"deny": ["b*"]}]}, {}, "`bash` was requested", NOT_HERE),
        (
            {"tool_rules": [{"allow": ["ls", {"tool": "bash", "where": [{"path": "$.n", "in": [1, 2]}]}]}]},
            {"n": 3},
            "`bash` is allowed only where `$.n` is one of `[1,2]`",
            INPUT,
        ),
        ({"tool_rules": [{"allow": ["ls"]}]}, {}, "`bash` is not in the allow list", NOT_HERE),
        (
            {"rules": [{"type": "precondition", "tool": "bash", "requires": [{"user_said": "go"}]}]},
            {},
            "`bash` was requested without a user message that matches `go`",
            NOT_YET,
        ),
        (
            {
                "rules": [
                    {
                        "type": "precondition",
                        "tool": "bash",
                        "requires": [{"prior": ["a", "b"], "same": [{"path": "$.n"}]}],
                    }
                ]
            },
            {},
            "`bash` was requested without a completed call of `a` or `b` for the same `$.n`",
            NOT_YET,
        ),
        (
            {
                "rules": [
                    {"type": "precondition", "tool": "bash", "requires": [{"prior": "ls", "description": "look"}]}
                ]
            },
            {},
            "`bash` was requested, which requires: look",
            NOT_YET,
        ),
    ],
)
def test_a_rule_says_what_about_a_call_it_refuses(policy: Any, call: Any, message: str, tell_model: str) -> None:
    """To the operator: the condition it met. The model is told what kind of refusal it is, and nothing of that."""
    compiled = compile_policy(parse_policies({"name": "p", "on_violation": "deny", **policy})[0])
    decision = compiled.monitor().propose(ToolCall(id="1", name="bash", input=call))

    assert [violation.details["actual"] for violation in decision.violations] == [message]
    assert decision.tell_model == tell_model


COMMANDS = ["ls", "cat", "git status", "git diff", "npm test", "make", "ruff", "mypy"]


@pytest.mark.parametrize(
    ("listed", "line", "message"),
    [
        (
            "deny",
            "cd x && git diff",
            "`bash` was requested, and `$.command` would run `git diff` (got `cd x && git diff`)",
        ),
        (
            "deny",
            "make; ls -l",
            "`bash` was requested, and `$.command` would run `ls` or `make` (got `make; ls -l`)",
        ),
        (
            "deny",
            "$X",
            "`bash` was requested, and `$.command` would run `ls` or `cat` or `git status` or `git diff` "
            "or `npm test` or one of 3 others (got `$X`)",
        ),
        ("allow", "ls && touch x", "`bash` would run `touch`, which the allow list does not name"),
        ("allow", "git push; git push", "`bash` would run `git push`, which the allow list does not name"),
        (
            "allow",
            "eval $X > y",
            "`bash` would run `eval` and what is known only when it runs and a `redirect` into a file, "
            "which the allow list does not name",
        ),
        (
            "allow",
            7,
            "`bash` is allowed only where `$.command` would run `ls` or `cat` or `git status` or `git diff` "
            "or `npm test` or one of 3 others (got `7`)",
        ),
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


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (
            {"type": "after", "trigger": "x", "then": "y"},
            "`z` came instead of `y`; expected `y` within 1 call after `x`",
        ),
        (
            {"type": "eventually", "tool": "y", "within": 2},
            "`z` would be call number 2 without `y`; expected `y` within the first 2 calls",
        ),
        (
            {"type": "count", "tool": "z", "max": 0},
            "`z` would be call number 1; expected at most 0 started calls of `z`",
        ),
        (
            {"type": "max_parallel", "max": 1},
            "`z` would be call number 2 in response 1; expected at most 1 call in one ",
        ),
        ({"type": "forbidden_sequence", "sequence": ["x", "z"]}, "`z` would complete x -> z; expected never x -> z"),
        (
            "require human-approval before z",
            "transition `ask` of net `require human-approval before z` asks a person to approve `z`; expected a ",
        ),
        ("block z", "net `block z` does not let `z` through as it stands (no token); expected an enabled transition"),
    ],
)
def test_what_was_found_can_be_read_by_itself(rule: Any, message: str) -> None:
    """What happened, then what was expected; each says of what."""
    given = {"nets": [rule]} if isinstance(rule, str) else {"rules": [rule]}
    monitor = compile_policy(parse_policies({"name": "p", "on_violation": "deny", **given})[0]).monitor()
    monitor.propose(ToolCall(id="1", name="x", turn=1))
    (violation,) = monitor.propose(ToolCall(id="2", name="z", turn=1)).violations

    assert f"{violation.details['actual']}; expected {violation.details['expected']}".startswith(message)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"type": "require", "tool": "y"}, "`y` was never called; expected a call of `y`"),
        ({"type": "count", "tool": "y", "min": 1}, "0 calls of `y`; expected at least 1 call of `y`"),
        (
            {"type": "after", "trigger": "x", "then": "y", "within": 9},
            "the session ended without `y`; expected `y` within",
        ),
    ],
)
def test_what_was_owed_can_be_read_by_itself(rule: Any, message: str) -> None:
    """At the end too."""
    monitor = compile_policy(parse_policies({"name": "p", "rules": [rule]})[0]).monitor()
    monitor.propose(ToolCall(id="1", name="x", turn=1))
    (violation,) = monitor.finish().violations

    assert f"{violation.details['actual']}; expected {violation.details['expected']}".startswith(message)


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ({"path": "$.a", "equals": "x"}, "`$.a` is `x`"),
        ({"path": "$.a", "not_equals": None}, "`$.a` is not `null`"),
        ({"path": "$.a", "exists": True}, "`$.a` is given"),
        ({"path": "$.a", "exists": False}, "`$.a` is not given"),
        ({"path": "$.a[*]", "contains": "b" * 70, "at_least": 2}, f"`$.a[*]` contains `{'b' * 57}...` 2 times"),
        ({"path": "$.a", "equals": {"arg": "$.b"}}, "`$.a` is the call's `$.b`"),
        (
            {"path": "$.a", "in": {"output_of": ["f", "g"], "path": "$.id"}},
            "`$.a` is one of what `f` or `g` returned",
        ),
        ({"any_of": [{"path": "$.a", "lte": 1}, {"path": "$.a", "type": "null"}]}, "(`$.a` is at most `1` or "),
    ],
)
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


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        (0, "0"),
        (10, "10"),
        (5000.0, "5,000"),
        (0.25, "0.25"),
        (1.0000004, "1"),
        (3e-9, "3e-09"),
        (12_345_678, "12,345,678"),
    ],
)
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
    policy = {
        "name": "p",
        "on_violation": "deny",
        "limits": {"max_tool_calls": {"max": 2, "description": "One is enough."}},
        "tool_rules": [
            {
                "deny": [{"tool": "bash", "where": [{"path": "$.command", "contains": "rm"}]}],
                "description": "Nothing is removed.",
            }
        ],
        "rules": [
            {"id": "order", "type": "before", "first": "test", "then": "deploy", "description": "Tests come first."},
            {"id": "never", "type": "never_after", "trigger": "read", "forbidden": "deploy"},
            {
                "id": "paid",
                "type": "precondition",
                "tool": "ship",
                "requires": [
                    {"prior": "pay", "output": [{"path": "$.ok", "equals": True}, {"path": "$.by", "in": ["a"]}]}
                ],
            },
        ],
    }
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
