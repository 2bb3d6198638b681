"""`verify` on values, contexts and outcomes that an earlier search missed, and so gave a wrong proof or
refutation.
"""

from typing import Any

import msgspec
import pytest
from reference.certificates import check

from proctor.adapters.kit.client_tools import CODEX_TOOLS
from proctor.policies import Policy, Proved, Refuted, RunContext, Unknown, merge_policies, verify
from proctor.policies.analysis.refinement import (
    AmountCertificate,
    BudgetCertificate,
    NothingCertificate,
    SameRuleCertificate,
)
from proctor.policies.events.run_context import Tool
from proctor.policies.stack.merge import effective_limits
from proctor.policies.values.automata import texts_apart
from proctor.policies.values.regexes import Regex

from .test_questions import policy


def denied(*where: dict[str, Any]) -> Policy:
    """A stack that denies payments with such an input."""
    return policy(tool_rules=[{"deny": [{"tool": "pay", "where": list(where)}]}])


def only(*where: dict[str, Any]) -> dict[str, Any]:
    """A stack that allows payments with such an input only."""
    return {"allow": [{"tool": "pay", "where": list(where)}]}


def provenance(**more: Any) -> dict[str, Any]:
    """A rule that a payment's receiver must come from an earlier lookup."""
    return {"type": "provenance", "tool": "pay", "path": "$.to", "from": [{"tool": "look", "path": "$.x"}], **more}


BANK = {
    "name": "bank",
    "places": ["money"],
    "transitions": [
        {"name": "in", "type": "auto", "inputs": [], "outputs": ["money"], "tools": ["earn"]},
        {"name": "out", "type": "auto", "inputs": ["money"], "outputs": [], "tools": ["pay"]},
    ],
}
NAMED = {"tool": "pay", "where": [{"path": "$.to", "exists": True}]}
MATCHING = {"prior": "look", "output": [{"path": "$.order", "equals": {"arg": "$.order_id"}}]}
LISTED = {"path": "$.to", "not_in": {"output_of": ["users"], "path": "$.id"}}
TWICE = {"type": "max_calls", "tool": "pay", "max": 2}
KEYED = {"type": "before", "first": "look", "then": "pay", "key": "$.to"}
POOL = {
    "name": "pool",
    "places": ["free"],
    "initial_marking": {"free": 2},
    "transitions": [{"name": "take", "inputs": ["free"], "outputs": ["free"], "tools": ["pay"], "deferred": True}],
}
BOUND: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a key": (KEYED, {"equals": "k1"}),
    "a key of several": (KEYED, {"in": ["k1", "k2"]}),
    "a key that is a number": (KEYED, {"gt": 5}),
    "a key that is a truth value": (KEYED, {"equals": True}),
    "an earlier input": (
        {"type": "precondition", "tool": "pay", "requires": [
            {"prior": "look", "same": [{"path": "$.to", "prior_path": "$.x"}]}]},
        {"equals": "k1"},
    ),
    "an earlier output": (
        {"type": "precondition", "tool": "pay", "requires": [
            {"prior": "look", "same": [{"path": "$.to", "prior_output_path": "$.x"}]}]},
        {"equals": "k1"},
    ),
    "a text that was returned": (
        {"type": "precondition", "tool": "pay", "requires": [
            {"prior": "look", "same": [{"path": "$.to", "prior_output_regex": r"id=(\w+)"}]}]},
        {"equals": "k1"},
    ),
    "a source": (provenance(), {"equals": "k1"}),
    "a source of numbers": (provenance(), {"gte": 5}),
    "a user": (provenance(**{"from": ["user_message"]}), {"equals": 7}),
    "a pattern": (provenance(**{"from": ["user_message"]}), {"regex": "^k[0-9]$"}),
}  # fmt: skip
"""Rules that bind a payment to a value, and a condition on the same value."""
REFUTED: dict[str, tuple[Policy, dict[str, Any]]] = {
    "what the judged call names, as an earlier one returned it": (
        policy({"type": "precondition", "tool": "pay", "requires": [MATCHING]}),
        {"reach": {"tool": "pay", "where": [{"path": "$.amount", "gt": 500}]}},
    ),
    "more calls at once than a net has tokens": (policy(), {"keeps": policy(nets=[POOL])}),
    "attempts that the stack refuses": (
        policy(TWICE, tool_rules=[{"deny": [{"tool": "pay", "where": [{"path": "$.n", "gt": 5}]}]}]),
        {"keeps": policy({"type": "count", "tool": "pay", "max": 2, "of": "attempted"})},
    ),
    "attempts that a limit asks about": (
        policy(TWICE, limits={"max_turns": {"max": 1, "action": "request_approval"}}),
        {"keeps": policy({"type": "count", "tool": "pay", "max": 2, "of": "attempted"})},
    ),
    "what nothing returned": (policy(), {"keeps": denied(LISTED)}),
    "what an earlier call returned": (denied(LISTED), {"reach": "pay"}),
    "a binding for each value of a key": (
        policy({"type": "precondition", "tool": "pay", "key": "$.n", "requires": [
            {"prior": "look", "same": [{"path": "$.id"}]}]}),
        {"reach": "pay"},
    ),
    "a number as its text": (
        denied({"path": "$.n", "equals": 5}, {"path": "$.n", "type": "integer"}),
        {"keeps": denied({"path": "$.n", "equals": 5})},
    ),
    "what a pattern extracts": (policy(), {"keeps": policy(provenance(extract=r"[A-Z]{4}\d+"))}),
    "a value that needs no source": (policy(provenance(**{"except": ["ana"]})), {"reach": NAMED, "tools": ["pay"]}),
    "a text that is hard to make up": (policy(), {"keeps": denied({"path": "$.n", "regex": r"^\w+\b.\b[^a-y]\d$"})}),
    "a context that is hard to make up": (
        policy(),
        {"keeps": policy({"type": "blocklist", "tools": ["pay"], "when": [{"path": "$.user", "regex": r"^z.\d$"}]})},
    ),
    "two patterns in one list": (
        policy(),
        {"keeps": denied({"path": "$.n", "regex": "^a$"}, {"path": "$.n", "regex": "^b$"})},
    ),
    "a failure that trips a breaker": (
        policy({"type": "count", "tool": "*", "max": 1}),
        {"keeps": policy({"type": "circuit_breaker", "total": 1})},
    ),
    "turns without a call": (policy(), {"keeps": policy(limits={"max_turns": 2})}),
    "turns past a limit that only asks": (
        policy(limits={"max_turns": {"max": 1, "action": "request_approval"}}),
        {"keeps": policy(limits={"max_turns": 2})},
    ),
    "a value read from a text": (
        policy({"type": "precondition", "tool": "pay", "requires": [
            {"prior": "look", "same": [{"path": "$.to", "prior_output_regex": r"to (\w+)"}]}]}),
        {"reach": "pay"},
    ),
    "output beside input": (
        policy(limits={"max_input_tokens": 5, "max_output_tokens": 6}),
        {"keeps": policy(limits={"max_total_tokens": 10})},
    ),
    "one element of a list": (
        denied({"path": "$.to[*]", "equals": "x"}, {"path": "$.to[*]", "equals": "y"}),
        {"keeps": denied({"path": "$.to[*]", "equals": "x"})},
    ),
    "turns before a value of a key was seen": (
        policy({"type": "precondition", "tool": "b", "requires": [{"turns_gte": 2}], "key": "$.n"}),
        {"reach": "b"},
    ),
    "a whole number between two that are not": (
        policy(), {"keeps": denied({"path": "$.n", "type": "integer", "gt": 5.5, "lt": 7.2})}
    ),
    "a number in another spelling": (
        denied({"path": "$.n", "equals": "7"}), {"keeps": denied({"path": "$.n", "equals": 7})}
    ),
    "the largest numbers": (
        denied({"path": "$.n", "lte": 1e308}), {"keeps": denied({"path": "$.n", "type": "number", "gt": 1e307})}
    ),
    "what no condition names": (
        denied({"path": "$.n", "in": ["zq", 987654, None, True, False]}),
        {"keeps": denied({"path": "$.n", "exists": True})},
    ),
    "letters beyond the first plane": (
        denied({"path": "$.n", "regex": "^[😀-😂]$"}), {"keeps": denied({"path": "$.n", "regex": "^[😁-😃]$"})}
    ),
    "the sign for kelvin, which is a k": (
        denied({"path": "$.n", "regex": "^[a-zA-Z]$"}), {"keeps": denied({"path": "$.n", "regex": "(?i)^[a-z]$"})}
    ),
    "a third case of a letter": (
        denied({"path": "$.n", "regex": "^[µ\u039c]$"}), {"keeps": denied({"path": "$.n", "regex": "(?i)^µ$"})}
    ),
    "a list of one text": (
        policy(tool_rules=[only({"path": "$.n", "regex": "^git push$"})]),
        {"keeps": policy(tool_rules=[only({"path": "$.n", "equals": "git push"})])},
    ),
    "a list that has something in it": (
        policy(), {"keeps": denied({"path": "$.n", "type": "array", "not_in": [[]]})}
    ),
    "a list in a list": (policy(), {"keeps": denied({"path": "$.n[*]", "type": "array"})}),
    "a list at a place of a list": (policy(), {"keeps": denied({"path": "$.n[0]", "type": "array"})}),
    "tokens used after a limit that only denies calls": (
        policy(limits={"max_total_tokens": {"max": 50, "action": "deny"}}),
        {"keeps": policy(limits={"max_total_tokens": 100})},
    ),
    "time that passes after a limit that only denies calls": (
        policy(limits={"max_duration_ms": {"max": 50, "action": "deny"}}),
        {"keeps": policy(limits={"max_duration_ms": 100})},
    ),
    "turns after a limit that only denies calls": (
        policy(limits={"max_turns": {"max": 1, "action": "deny"}}), {"keeps": policy(limits={"max_turns": 2})}
    ),
    "turns of several runs, where nothing is called": (
        policy(limits={"max_turns": 1}, tool_rules=[{"deny": ["*"]}]),
        {"keeps": policy(limits={"max_turns": {"max": 2, "scope": "session"}})},
    ),
    "calls that fail at once": (
        policy({"type": "circuit_breaker", "total": 1}), {"keeps": policy({"type": "circuit_breaker", "total": 3})}
    ),
    "a file of the workspace that was returned": (
        policy({"type": "precondition", "tool": "pay", "requires": [
            {"prior": "look", "output": [{"path": "$.p", "within": "."}]}]}),
        {"reach": "pay"},
    ),
    "an input as a whole": (
        denied({"path": "$", "lt": 7.5}, {"path": "$.n", "equals": 1}), {"keeps": denied({"path": "$", "lt": 7.5})}
    ),
    "a line that only bash reads": (
        policy(tool_rules=[only({"path": "$.c", "runs": ["cat", "ls"]})]),
        {
            "reach": {"tool": "pay", "where": [{"path": "$.c", "equals": "cat <(ls)"}]},
            "context": RunContext(tenant="t"),
        },
    ),
    "an attempt that is owed, and refused": (
        policy(
            {"type": "count", "tool": "c", "exact": 1, "of": "attempted"},
            tool_rules=[{"deny": ["c"]}],
        ),
        {"keeps": policy({"type": "require", "tool": "c"})},
    ),
}  # fmt: skip
PROVED: dict[str, tuple[Policy, dict[str, Any]]] = {
    "as many calls as there are responses": (
        policy({"type": "max_parallel", "max": 1}, limits={"max_turns": {"max": 2, "scope": "session"}}),
        {"keeps": policy({"type": "count", "tool": "*", "max": 2})},
    ),
    "a pattern in another": (
        denied({"path": "$.n", "regex": "a"}), {"keeps": denied({"path": "$.n", "regex": r"\ba\b"})}
    ),
    "a directory in another": (
        denied({"not": [{"path": "$.p", "within": "/srv/data"}]}),
        {"keeps": denied({"not": [{"path": "$.p", "within": "/srv"}]})},
    ),
    "a path by its name, outside a directory": (
        denied({"not": [{"path": "$.p", "within": "/srv"}]}),
        {"reach": {"tool": "pay", "where": [{"path": "$.p", "equals": "/srv/../etc/passwd"}]}},
    ),
    "a line by its text, beside a command": (
        denied({"path": "$.c", "runs": "git push"}),
        {"reach": {"tool": "pay", "where": [{"path": "$.c", "in": ["git push", "git push -f"]}]}},
    ),
    "one command of several": (
        denied({"path": "$.c", "runs": ["rm", "git push"]}), {"keeps": denied({"path": "$.c", "runs": "git push"})}
    ),
    "elements of a list": (
        denied({"path": "$.to[*]", "not_in": ["x"]}), {"keeps": denied({"path": "$.to[*]", "not_in": ["x", "y"]})}
    ),
    "messages in other words": (
        policy({"type": "precondition", "tool": "pay", "requires": [{"user_said": r"(?i)\bgo\b"}]}),
        {"keeps": policy({"type": "precondition", "tool": "pay", "requires": [{"user_said": "(?i)go"}]})},
    ),
    "loops of one thing": (
        policy({"type": "loop", "window": 3, "threshold": 2, "key": "$.id"}),
        {"keeps": policy({"type": "loop", "window": 3, "threshold": 3, "key": "$.id"})},
    ),
    "a run that is idle no longer than it lasts": (
        policy(limits={"max_duration_ms": 2000}), {"keeps": policy(limits={"max_idle_ms": 2000})}
    ),
    "a net that holds any number of tokens": (policy(nets=[BANK]), {"keeps": policy(nets=[BANK])}),
    "refusals of the stack itself": (
        policy({"type": "circuit_breaker", "total": 1, "action": "cancel"}),
        {"keeps": policy({"type": "circuit_breaker", "total": 2})},
    ),
    "refusals of a rule that is not followed": (
        policy(
            {"type": "circuit_breaker", "total": 2, "action": "cancel"},
            {"type": "precondition", "tool": "pay", "requires": [MATCHING]},
            limits={"max_cost_usd": 5},
        ),
        {"keeps": policy({"type": "circuit_breaker", "total": 3})},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUTED)
def test_a_counterexample_is_found(name: str) -> None:
    stack, question = REFUTED[name]
    answer = verify(stack, **question)
    assert isinstance(answer, Refuted), answer.reason


@pytest.mark.parametrize("name", BOUND)
def test_a_value_in_a_condition_may_come_from_anywhere(name: str) -> None:
    """It may be in earlier calls, in their outputs or in the user's messages, so the payment is reachable."""
    rule, condition = BOUND[name]
    only = {"allow": ["look", {"tool": "pay", "where": [{"path": "$.to", **condition}]}]}
    assert isinstance(verify(policy(rule, tool_rules=[only]), reach="pay"), Refuted)


@pytest.mark.parametrize("name", PROVED)
def test_a_proof_is_found(name: str) -> None:
    """Its certificates are valid."""
    stack, question = PROVED[name]
    answer = verify(stack, **question)
    assert isinstance(answer, Proved), answer.reason
    assert [check(each) for each in answer.certificates] == [[] for _ in answer.certificates]


ASKS = {"type": "before", "first": "human-approval", "then": "pay"}
ATTEMPTED = {"type": "count", "tool": "pay", "max": 1, "of": "attempted"}
WIDER: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "one yes for all calls of a session": ({"scope": "session"}, {}, "one yes"),
    "people who may not answer there": ({"approvers": ["ana", "bob"]}, {"approvers": ["ana"]}, "people"),
    "whoever started the run": ({}, {"four_eyes": True}, "whoever started"),
}


def test_a_budget_that_may_deny_attempts_prevents_a_proof() -> None:
    """The search does not read the store, so the answer is unknown and names the budget."""
    stack = policy({"type": "max_calls", "tool": "pay", "max": 1}, budgets=[{"name": "b", "max_cost_usd": 5}])
    answer = verify(stack, keeps=policy(ATTEMPTED))
    assert isinstance(answer, Unknown), answer.reason
    assert "budget" in answer.reason


@pytest.mark.parametrize("name", WIDER)
def test_a_wider_approval_is_weaker_if_both_stacks_ask(name: str) -> None:
    """The counterexample ends with a call that both ask about. If neither asks, neither is weaker."""
    mine, other, reason = WIDER[name]
    answer = verify(policy(ASKS, approval=mine), no_looser_than=policy(ASKS, approval=other))
    assert isinstance(answer, Refuted), answer.reason
    assert reason in answer.reason
    assert [call["decision"] for call in answer.session] == ["request_approval"]
    denies = {"type": "blocklist", "tools": ["pay"]}
    assert isinstance(verify(policy(denies, approval=mine), no_looser_than=policy(ASKS, approval=other)), Proved)
    never = policy(ATTEMPTED, approval=mine)
    assert isinstance(verify(never, no_looser_than=policy(ATTEMPTED, approval=other)), Proved)


def test_nobody_who_may_answer_is_no_wider_approval() -> None:
    """Of two policies without an approver in common, nobody may: the stack is no weaker than itself or than one of
    the two.
    """
    apart = [policy(ASKS, approval={"approvers": [who]}) for who in ("ana", "bob")]
    nobody = merge_policies(apart)

    assert isinstance(verify(nobody, same_as=nobody), Proved)
    assert isinstance(verify(nobody, no_looser_than=apart[0]), Proved)
    assert isinstance(verify(apart[0], no_looser_than=nobody), Refuted)


DELETION = "$.changes[?@.kind == 'delete']"
NO_DELETION = {"path": DELETION, "exists": False}
EDITED = {"path": "$.changes[?@.kind == 'update'].path", "within": "src"}
PATCHES: dict[str, tuple[Policy, dict[str, Any], str]] = {
    "one act of a patch is allowed": (policy(tool_rules=[{"allow": ["write"]}]), {"reach": "apply_patch"}, "refuted"),
    "one act is denied, not the others": (
        policy(tool_rules=[{"deny": ["delete"]}]), {"reach": "apply_patch"}, "refuted"
    ),
    "a denied act never comes": (policy(tool_rules=[{"deny": ["delete"]}]), {"reach": "delete"}, "proved"),
    "every act is denied": (
        policy(tool_rules=[{"deny": ["delete", "edit", "move", "write"]}]), {"reach": "apply_patch"}, "proved"
    ),
    "another act is denied": (
        policy(tool_rules=[{"deny": ["edit"]}]), {"keeps": policy(tool_rules=[{"deny": ["delete"]}])}, "refuted"
    ),
    "another act is counted": (
        policy({"type": "count", "tool": "edit", "max": 1}),
        {"keeps": policy({"type": "count", "tool": "write", "max": 1})},
        "refuted",
    ),
    "an act comes after another": (
        policy({"type": "before", "first": "write", "then": "edit"}), {"reach": "edit"}, "refuted"
    ),
    "an act in a folder": (
        policy(tool_rules=[{"allow": [{"tool": "edit", "where": [{"path": "$.path", "within": "/src"}]}]}]),
        {"reach": {"tool": "edit", "where": [{"path": "$.path", "within": "/src"}]}},
        "refuted",
    ),
    "a patch with a deletion deletes": (
        policy(tool_rules=[{"deny": ["delete"]}]),
        {"reach": {"tool": "apply_patch", "where": [{"path": DELETION, "exists": True}]}},
        "proved",
    ),
    "a patch that edits a file of a folder and deletes none": (
        policy(tool_rules=[{"allow": [{"tool": "apply_patch", "where": [NO_DELETION, EDITED]}]}]),
        {"no_looser_than": policy(tool_rules=[{"deny": ["delete"]}])},
        "proved",
    ),
    "a patch that tells of nothing may delete": (
        policy(tool_rules=[{"allow": [{"tool": "apply_patch", "where": [NO_DELETION]}]}]),
        {"no_looser_than": policy(tool_rules=[{"deny": ["delete"]}])},
        "refuted",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PATCHES)
def test_a_call_of_a_tool_with_several_acts_may_do_any_of_them(name: str) -> None:
    """A Codex patch writes, edits, deletes and moves files, as its input says."""
    stack, question, verdict = PATCHES[name]
    assert verify(stack, **question, tools=CODEX_TOOLS).verdict == verdict


@pytest.mark.parametrize("places", [("$.new", "$.changes[*].path"), ("$.new", "$.old")])
def test_an_act_may_take_its_input_from_another_path(places: tuple[str, ...]) -> None:
    """If a path marks a call as a write, the edit has its path in another place."""
    acts: dict[str, tuple[str, ...]] = {"write": ("$.new",), "edit": ("$.changes[?@.kind == 'update']",)}
    tools = [Tool(name="Patch", acts_where=acts, inputs={"path": places})]

    assert isinstance(verify(policy(tool_rules=[{"allow": ["edit"]}]), reach="Patch", tools=tools), Refuted)


def test_an_input_with_two_names_may_have_two_values() -> None:
    """A call may have a path under its native and its portable name; conditions read both."""
    tools = [Tool(name="Edit", acts=("edit",), inputs={"path": ("$.file_path",)})]
    other = {"tool": "edit", "where": [{"path": "$.path", "not_equals": "a"}]}
    same = {"tool": "edit", "where": [{"path": "$.path", "equals": "a"}]}
    denied = policy(tool_rules=[{"deny": [same]}])

    assert verify(denied, reach=other, tools=tools).verdict == "refuted"
    both = verify(policy({"type": "before", "first": same, "then": "x"}), reach="x", tools=[*tools, "x"])
    assert [call["tool"] for call in both.session] == ["Edit", "x"]
    once = policy({"type": "count", "tool": other, "max": 0})
    assert isinstance(verify(once, keeps=policy({"type": "count", "tool": same, "max": 0}), tools=tools), Refuted)
    neither = policy({"type": "count", "tool": other, "max": 0}, {"type": "count", "tool": same, "max": 0})
    found = verify(neither, reach={"tool": "edit", "where": [{"path": "$.path", "exists": True}]}, tools=tools)
    assert isinstance(found, Proved), found.reason


def test_a_value_extracted_by_a_pattern_is_not_proved_unreachable() -> None:
    """The search follows whole values, and four digits of a text are none."""
    same = [{"path": "$.to", "prior_output_regex": r"IBAN (\d{4})"}]
    stack = policy({"type": "precondition", "tool": "pay", "requires": [{"prior": "look", "same": same}]})
    assert not isinstance(verify(stack, reach="pay"), Proved)


def test_a_rule_that_only_warns_does_not_prove_the_same_property() -> None:
    """A property must hold without a warning."""
    warning = policy({"type": "blocklist", "tools": ["pay"], "action": "warn"})
    assert isinstance(verify(warning, keeps=warning), Refuted)
    assert isinstance(verify(warning, no_looser_than=warning), Proved)


@pytest.mark.parametrize(("directory", "path"), [(".", "/srv/x"), ("~", "/root/x"), ("/srv", "x"), ("..", "../../x")])
def test_a_directory_decides_only_if_its_location_is_known(directory: str, path: str) -> None:
    """Unless the context says where it is, the workspace may be anywhere."""
    stack = policy(tool_rules=[only({"path": "$.p", "within": directory})])
    reached = {"tool": "pay", "where": [{"path": "$.p", "equals": path}]}
    assert not isinstance(verify(stack, reach=reached), Proved)
    elsewhere = RunContext(workspace="/a/b/c", home="/home/ana")
    assert isinstance(verify(stack, reach=reached, context=elsewhere), Proved)


def test_overlapping_paths_are_not_taken_as_independent() -> None:
    """One path selects a list's element by its index, the other by its content."""
    first = denied({"path": "$.l[0]", "equals": 1}, {"path": "$['l'][?@.k == 1].v", "equals": 1})
    assert not isinstance(verify(denied({"path": "$.l[0]", "equals": 1}), keeps=first), Refuted)


def test_contexts_that_were_not_searched_are_named() -> None:
    """No context is built for a length and a pattern of one field, so the answer asks for one."""
    when = [{"path": "$.tenant", "regex": "a"}, {"path": "$.tenant", "length_gte": 30}]
    limited = policy({"type": "count", "tool": "pay", "max": 1, "when": when})
    answer = verify(policy({"type": "count", "tool": "pay", "max": 1}), keeps=limited)
    assert isinstance(answer, Unknown)
    assert "$.tenant" in answer.reason
    assert isinstance(verify(policy(), keeps=limited, context=RunContext(tenant="b")), Proved)


PATTERNS = [
    (r"(?i)\bpassword\b", r"(?i)password"),
    (r"^git", r"\bgit\s+push\b", r"^ls$"),
    (r"a{3,5}b", r"b$", r"[^a-z]"),
    (r"(?m)^x$", r"^x$", r"x\n"),
    (r"@a[.]com$", r"^x@a\.com$", r"^y@a\.com$"),
]


@pytest.mark.parametrize("patterns", PATTERNS)
def test_a_sample_text_is_found_for_each_set_of_patterns(patterns: tuple[str, ...]) -> None:
    """Each text matches exactly its set, and no short text matches another set."""
    apart = texts_apart(patterns)
    assert apart.complete
    for met, text in apart.texts.items():
        assert tuple(Regex(pattern).found_in(text) for pattern in patterns) == met
    words = ["", "git", "push", " ", "\n", "a", "b", "aaa", "x", "ls", "password", "@a.com", "y", "-"]
    for text in (a + b + c for a in words for b in words for c in words):
        assert tuple(Regex(pattern).found_in(text) for pattern in patterns) in apart.texts, repr(text)


def test_too_many_patterns_give_an_incomplete_answer() -> None:
    assert not texts_apart(tuple(f"{letter}x*{letter}" for letter in "abcdefgh")).complete


REFUNDS = {"type": "precondition", "tool": "transfer", "requires": [{"prior": "approve"}]}
SAME_INPUT = {"prior": "approve", "same": [{"path": "$.amount"}, {"path": "$.to"}]}
SECRETS = {"path": "$.path", "within": "/secrets"}
ELSEWHERE: dict[str, tuple[Policy, dict[str, Any], str]] = {
    "a rule that another makes dead": (
        policy({"type": "count", "tool": "pay", "max": 2}),
        {"same_as": policy({"type": "count", "tool": "pay", "max": 2}, {"type": "count", "tool": "pay", "max": 5})},
        "proved",
    ),
    "a rule whose trigger never comes": (
        policy({"type": "never_after", "trigger": "drop", "forbidden": "mail"}, tool_rules=[{"deny": ["drop"]}]),
        {"same_as": policy(tool_rules=[{"deny": ["drop"]}])},
        "proved",
    ),
    "a rule that blocks itself": (
        policy({"type": "before", "first": "deploy", "then": "deploy"}),
        {"reach": "deploy"},
        "proved",
    ),
    "two rules that block each other": (
        policy({"type": "before", "first": "a", "then": "b"}, {"type": "before", "first": "b", "then": "a"}),
        {"reach": ["a", "b"]},
        "proved",
    ),
    "a second tool that does the same": (
        policy(tool_rules=[{"deny": [{"tool": "read", "where": [SECRETS]}]}]),
        {"keeps": policy(tool_rules=[{"deny": [{"tool": ["read", "open_file"], "where": [SECRETS]}]}])},
        "refuted",
    ),
    "an approval that covers a later input": (
        policy(REFUNDS),
        {"keeps": policy({"type": "precondition", "tool": "transfer", "requires": [SAME_INPUT]})},
        "refuted",
    ),
    "an approval for that very input": (
        policy({"type": "precondition", "tool": "transfer", "requires": [SAME_INPUT]}),
        {"keeps": policy(REFUNDS)},
        "proved",
    ),
}  # fmt: skip
"""Published findings about sample policies of other engines, as far as our language can express them."""


@pytest.mark.parametrize("name", ELSEWHERE)
def test_findings_published_for_other_engines_are_found(name: str) -> None:
    stack, question, verdict = ELSEWHERE[name]
    assert verify(stack, **question).verdict == verdict


ONE_BY_ONE: dict[str, tuple[Policy, dict[str, Any]]] = {
    "the same list": (denied(LISTED), {"keeps": denied(LISTED)}),
    "the same amount": (
        policy(limits={"max_total_tokens": {"max": 5, "action": "deny"}}),
        {"keeps": policy(limits={"max_total_tokens": 5})},
    ),
    "two amounts": (
        policy(limits={"max_input_tokens": 5, "max_output_tokens": 6}),
        {"keeps": policy(limits={"max_total_tokens": 11})},
    ),
    "a budget": (
        policy(budgets=[{"name": "b", "max_cost_usd": 5, "window": "day"}]),
        {"keeps": policy(budgets=[{"name": "b", "max_cost_usd": 6, "window": "day"}])},
    ),
    "no rules": (policy(ASKS), {"keeps": policy()}),
    "a limit that only warns": (
        policy(), {"no_looser_than": policy(limits={"max_turns": {"max": 3, "action": "warn"}})}
    ),
}  # fmt: skip


CHEAP, DEAR = ({"m": {"input_usd_per_mtok": price, "output_usd_per_mtok": price}} for price in (1, 100))
COSTS = {"limits": {"max_cost_usd": 5}}


@pytest.mark.parametrize("costs", [COSTS, {"budgets": [{"name": "b", "max_cost_usd": 5, "window": "day"}]}])
@pytest.mark.parametrize(("mine", "other", "proved"), [
    ({"prices": CHEAP}, {"prices": CHEAP}, True),
    ({"prices": CHEAP}, {"prices": DEAR}, False),
    ({"prices": CHEAP}, {}, False),
    ({}, {"unpriced": "reject"}, False),
    ({"unpriced": "reject"}, {}, True),
])  # fmt: skip
def test_a_cost_limit_is_as_strict_only_with_prices_as_high(
    costs: dict[str, Any], mine: dict[str, Any], other: dict[str, Any], proved: bool
) -> None:
    """A lower price weakens the limit, and so does a model without a price."""
    answer = verify(policy(**costs, **mine), no_looser_than=policy(**costs, **other))
    assert isinstance(answer, Proved) == proved, answer.reason


def test_a_lower_price_beside_a_locked_limit_weakens_nothing() -> None:
    """For models that the locked policy does not name, public prices are the minimum."""
    org, team = policy(**COSTS, locked=True), msgspec.structs.replace(policy(prices=CHEAP), name="team")
    assert isinstance(verify([org, team], no_looser_than=org), Proved)


def test_a_rule_with_another_id_and_text_is_proved_equal_without_a_search() -> None:
    """Neither the id nor the text for the model decides anything."""
    loop = {"type": "loop", "window": 8, "threshold": 3}
    stack = policy({**loop, "id": "circle", "tell_model": "Try something else."})
    answer = verify(stack, keeps=policy(loop), steps=2_000)
    assert [type(each) for each in answer.certificates] == [SameRuleCertificate], answer.reason
    assert verify(stack, keeps=policy({**loop, "window": 9}), steps=2_000).verdict == "unknown"


@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_a_proof_without_a_search_has_a_certificate_too(name: str) -> None:
    """With another rule or a larger amount in its place, the certificate is invalid."""
    stack, question = ONE_BY_ONE[name]
    answer = verify(stack, **question)
    assert isinstance(answer, Proved), answer.reason
    [certificate] = answer.certificates
    assert check(certificate) == []
    if isinstance(certificate, AmountCertificate):
        [larger] = effective_limits(policy(limits={"max_total_tokens": 4}))
        assert check(certificate._replace(limit=larger))
    elif isinstance(certificate, BudgetCertificate):
        assert check(certificate._replace(mine=certificate.budget, budget=certificate.mine))
        assert check(certificate._replace(mine=msgspec.structs.replace(certificate.mine, action="warn")))
    elif isinstance(certificate, NothingCertificate):
        [limit] = effective_limits(policy(limits={"max_total_tokens": 4}))
        assert check(certificate._replace(property=certificate.property._replace(limits=(limit,))))
    else:
        mine = certificate.mine.rule
        weaker = msgspec.structs.replace(mine, clause=mine.clause._replace(action="warn"))
        assert check(certificate._replace(mine=certificate.mine._replace(rule=weaker)))
