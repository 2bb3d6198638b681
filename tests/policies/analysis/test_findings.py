"""Preflight findings about an adapter: unknown names, the effect of limits, rules it can only observe; common
mistakes.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from proctor.policies import ToolCall, compile_policy, load_policies, merge_policies, parse_policies, preflight
from proctor.policies.analysis import Findings
from proctor.policies.events.run_context import Capabilities, RunContext, tool

from .test_all_checks import TENANT, WHERE, before, finding_with, findings_on, needs, refusal_codes, rules


def test_names_that_the_adapter_does_not_offer_are_reported_with_the_nearest_name() -> None:
    """The virtual names of its tools count as offered."""
    document = rules(
        before("bsh", "push"),
        virtual_tools=[{"tool": "bash", "path": "$.command", "match": "git push", "as": "push"}],
    )
    finding = finding_with(
        "unknown_tool", findings_on(document, capabilities=Capabilities(gate="all", tools=("bash", "read")))
    )

    assert (finding.witness, finding.suggestion) == (("bsh",), "did you mean `bash`?")


def test_rules_that_the_adapter_can_only_observe_are_reported() -> None:
    """Rules that become the adapter's own options are enforced. The others only signal, or only record."""
    document = rules(
        before("a", "b"),
        {"type": "max_calls", "tool": "a", "max": 3, "action": "request_approval"},
        tool_rules=[{"deny": ["rm"]}, {"allow": ["*"], "action": "deny", "unpreventable": "warn"}],
    )
    some = Capabilities(gate="some", compiles=("deny",))
    findings = [f for f in findings_on(document, capabilities=some) if f.code == "only_observed"]

    assert [finding.witness for finding in findings] == [("allow-1",), ("before-1",), ("max_calls-1",)]
    assert "only record it" in findings[0].message
    assert "only signal" in findings[2].message
    assert not findings_on(document, capabilities=Capabilities(gate="all"))


WHEN = {"tool_rules": [{"deny": ["x"], "when": [TENANT, {"any_of": [{"path": "$.labels.env", "equals": "prod"}]}]}]}


@pytest.mark.parametrize(("context", "missing"), [
    ({}, ("$.tenant", "$.labels.env")),
    ({"tenant": None}, ("$.labels.env",)),
    ({"tenant": "x", "labels": {}}, ("$.labels.env",)),
    ({"labels": {"env": None}}, ("$.tenant",)),
    ({"tenant": None, "labels": {"env": None}}, ()),
])  # fmt: skip
def test_a_context_without_a_value_that_a_rule_reads_is_rejected(
    context: dict[str, Any], missing: tuple[str, ...]
) -> None:
    """Whatever the condition compares; None counts as a value."""
    stack = merge_policies(parse_policies({"version": 1, "name": "p", **WHEN}))
    findings = preflight(stack, context=RunContext(**context))

    assert preflight(stack) == []
    assert [(f.code, f.rule, f.witness) for f in findings.refusals] == (
        [("context_missing", "deny-1", missing)] if missing else []
    )


LIMITS = {"limits": {"max_total_tokens": 9, "max_cost_usd": 1, "max_turns": {"max": 3, "action": "deny"}}}


@pytest.mark.parametrize(("capabilities", "uncounted"), [
    (Capabilities(gate="all"), ["max_total_tokens", "max_cost_usd"]),
    (Capabilities(gate="all", reports_cost=True), ["max_total_tokens"]),
    (Capabilities(gate="all", usage="at_end"), []),
    (Capabilities(gate="none", usage="per_turn"), []),
])  # fmt: skip
def test_each_limit_is_reported_with_its_effect_and_whether_the_adapter_reports_its_usage(
    capabilities: Capabilities, uncounted: list[str]
) -> None:
    """Only if the adapter is known."""
    findings = findings_on(LIMITS, capabilities=capabilities)
    effects = {f.rule: f.message for f in findings if f.code == "limit_effect"}

    assert findings_on(LIMITS) == []
    assert findings.refusals == ()
    assert [f.rule for f in findings if f.code == "uncounted_limit"] == uncounted
    assert sorted([*effects, *uncounted]) == ["max_cost_usd", "max_total_tokens", "max_turns"]
    assert "denies later calls" in effects["max_turns"] or "denies every later call" in effects["max_turns"]
    if capabilities.gate == "none":
        assert "cancels the run at any other" in effects["max_turns"]


AGENT = (
    tool("Bash", "bash", "command", "timeout"),
    tool("Read", "read", path="$.file_path"),
    tool("TodoWrite", "", "todos"),
    "mcp__x__search",
)


@pytest.mark.parametrize(
    ("document", "code", "suggestion"),
    [
        ({"tool_rules": [{"deny": ["bahs"]}]}, "unknown_tool", "did you mean `bash`?"),
        ({"tool_rules": [{"deny": [{"tool": "read", "where": [{"path": "$.pth", "exists": True}]}]}]},
         "unknown_input", "did you mean `path`?"),
        ({"tool_rules": [{"deny": [{"tool": "Bash", "where": [{"not": [{"path": "$.comand", "equals": 1}]}]}]}]},
         "unknown_input", "did you mean `command`?"),
        (rules({"type": "max_calls", "tool": "read", "max": 2, "key": "$.pat"}),
         "unknown_input", "did you mean `path`?"),
        (rules({"type": "provenance", "tool": "bash", "path": "$['comand']", "from": ["user_message"]}),
         "unknown_input", "did you mean `command`?"),
        (rules(needs("bash", {"prior": "read", "same": [{"path": "$.command", "prior_path": "$.file"}]})),
         "unknown_input", "did you mean `file_path`?"),
        (rules(before("TodoWrit", "bash")), "unknown_tool", "did you mean `TodoWrite`?"),
        (rules(before("human_approval", "bash")), "unknown_tool", "did you mean `human-approval`?"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("others", [False, True])
def test_an_unknown_tool_or_input_name_is_reported_with_the_nearest_name(
    document: dict[str, Any], code: str, suggestion: str, others: bool
) -> None:
    """With `enforcement: required` it is an error. Other tools of the agent don't hide a misspelt name."""
    agent = Capabilities(gate="all", tools=AGENT, other_tools=others)
    finding = finding_with(code, findings_on(document, capabilities=agent))

    assert (finding.severity, finding.suggestion) == ("report", suggestion)
    assert refusal_codes({**document, "enforcement": "required"}, capabilities=agent) == [code]
    assert findings_on(document, capabilities=Capabilities(gate="all")) == findings_on(document)


def test_a_name_near_a_known_one_is_not_misspelt_if_another_rule_uses_it() -> None:
    """Only if the agent may have other tools: `send_direct_message` beside `send_message`."""
    agent = Capabilities(gate="all", tools=AGENT, other_tools=True)
    allowed = {"tool_rules": [{"allow": ["bash", "todo_write"]}]}

    assert finding_with("unknown_tool", findings_on(allowed, capabilities=agent)).witness == ("todo_write",)
    assert findings_on({**allowed, **rules(before("todo_write", "bash"))}, capabilities=agent) == []


@pytest.mark.parametrize("document", [
    {"tool_rules": [{"deny": ["bash", "READ", "todowrite", "mcp__x__*"]}]},
    {"tool_rules": [{"deny": [{"tool": "read", "where": [{"path": "$.path", "within": "."}]}]}]},
    {"tool_rules": [{"deny": [{"tool": "Read", "where": [{"path": "$.file_path", "within": "."}]}]}]},
    {"tool_rules": [{"deny": [{"tool": "mcp__x__search", "where": [WHERE]}]}]},
    rules(before("push", "bash"), virtual_tools=[{"tool": "bash", "path": "$.command", "match": "p", "as": "push"}]),
    rules(before("Look", "bash"), aliases={"Look": ["read"]}),
])  # fmt: skip
def test_native_portable_and_virtual_names_and_their_inputs_are_known(document: dict[str, Any]) -> None:
    """If only a tool's name is known, it may have any input."""
    findings = findings_on(document, capabilities=Capabilities(gate="all", tools=AGENT))

    assert [f.code for f in findings if f.code.startswith("unknown")] == []


def test_a_strange_name_is_unknown_only_if_all_tools_are_known() -> None:
    document = {"tool_rules": [{"deny": ["issue_refund", "mcp__y__*", "glob"]}]}

    assert findings_on(document, capabilities=Capabilities(gate="all", tools=AGENT, other_tools=True)) == []
    unknown = finding_with("unknown_tool", findings_on(document, capabilities=Capabilities(gate="all", tools=AGENT)))
    assert unknown.witness == ("issue_refund", "mcp__y__*", "glob")


@pytest.mark.parametrize(("line", "suggestion"), [
    ("limit deploy to 1 per test", "add `require test before deploy`"),
    ("limit deploy to 3 per test", "add `require test before deploy`"),
    ("limit deploy to 3 per session", None),
    ("limit deploy to 0 per test", None),
    ("require test before deploy", None),
])  # fmt: skip
def test_a_limit_per_action_that_starts_full_is_reported(line: str, suggestion: str | None) -> None:
    """The suggestion is the line that was probably meant."""
    notes = [f for f in findings_on({"nets": [line]}) if f.code == "starts_full"]

    assert [suggestion in each.suggestion for each in notes if suggestion] == ([True] if suggestion else [])
    assert bool(notes) == (suggestion is not None)


@pytest.mark.parametrize(("beside", "noted"), [
    ({"nets": ["require test before deploy"]}, False),
    ({"nets": ["REQUIRE  test  before  deploy"]}, False),
    (rules(before("test", "deploy")), False),
    (rules(before(["test"], ["deploy"])), False),
    (rules(before("check", "deploy"), aliases={"check": ["test"]}), False),
    ({"nets": ["require deploy before test"]}, True),
    ({"nets": ["require lint before deploy"]}, True),
    ({"nets": [{"line": "require test before deploy", "action": "warn"}]}, True),
    (rules(before("test", "deploy", key="$.to")), True),
    (rules(before("test", {"tool": "deploy", "where": [{"path": "$.to", "equals": "prod"}]})), True),
    (rules(before("test", "deploy", when=[{"path": "$.user_role", "equals": "dev"}])), True),
])  # fmt: skip
@pytest.mark.parametrize("another", [False, True])
def test_a_limit_that_starts_full_is_not_reported_beside_the_suggested_rule(
    beside: dict[str, Any], noted: bool, another: bool
) -> None:
    """The rule may stand in any policy of the stack, in any spelling. A weaker rule does not count."""
    limit = {"name": "p", "nets": ["limit deploy to 1 per test"]}
    both = {**limit, **beside, "nets": [*limit["nets"], *beside.get("nets", ())]}
    written = [limit, {"name": "q", **beside}] if another else [both]
    stack = merge_policies([policy for each in written for policy in parse_policies(each)])
    first = compile_policy(stack).monitor().propose(ToolCall(id="1", name="deploy", input={"to": "dev"})).action

    assert any(f.code == "starts_full" for f in preflight(stack)) == noted
    assert noted or first == "cancel"


@pytest.mark.parametrize(("condition", "noted"), [
    ({"path": "$.user_role", "not_equals": "admin"}, True),
    ({"path": "$.user_role", "not_in": ["admin"]}, True),
    ({"any_of": [{"path": "$.user_role", "not_equals": "admin"}]}, True),
    ({"not": [{"path": "$.user_role", "equals": "admin"}]}, False),
    ({"path": "$.user_role", "equals": "admin"}, False),
])  # fmt: skip
def test_a_when_that_none_satisfies_is_reported(condition: dict[str, Any], noted: bool) -> None:
    """The monitor agrees: the reported condition lets a call through, and the suggested one does not."""
    policy = merge_policies(parse_policies({"name": "p", "tool_rules": [{"deny": ["bash"], "when": [condition]}]}))
    answer = compile_policy(policy).monitor(RunContext(user_role=None)).propose(ToolCall(id="1", name="bash")).action
    notes = [f for f in preflight(policy) if f.code == "none_in_context"]

    assert bool(notes) == noted
    assert answer == ("cancel" if "not" in condition else "allow")


EXAMPLES = Path(__file__).parents[3] / "examples"
MISTAKES: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("mistakes.yaml").read_text())


def findings_on_texts(documents: list[str]) -> Findings:
    """The findings on a stack of policies named p0, p1 and so on."""
    policies = [p for n, text in enumerate(documents) for p in parse_policies(f"version: 1\nname: p{n}\n{text}")]
    return preflight(merge_policies(policies))


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: " / ".join(mistake["policies"]))
def test_a_mistake_is_reported_with_its_witness(mistake: dict[str, Any]) -> None:
    """The first finding and its text."""
    finding = findings_on_texts(mistake["policies"])[0]

    assert str(finding) == mistake["says"]
    assert (finding.severity, finding.code) == (mistake["severity"], mistake["code"])
    assert list(finding.witness) == mistake["witness"]


@pytest.mark.parametrize("text", [
    "rules: [{type: count, tool: a, min: 2, of: attempted}, {type: max_calls, tool: a, max: 1}]",
    "rules: [{type: count, tool: a, min: 2}, {type: count, tool: a, max: 1, of: completed}]",
    "rules: [{type: count, tool: a, min: 2}, {type: count, tool: a, max: 1, within_turns: 1}]",
    "rules: [{type: count, tool: a, min: 2}, {type: max_calls, tool: a, max: 1, key: $.id}]",
    "rules: [{type: count, tool: a, min: 2}, {type: max_calls, tool: a, max: 1, action: warn}]",
    "rules: [{type: count, tool: '*', min: 2}, {type: max_calls, tool: a, max: 1}]",
    "rules: [{type: require, tool: a}, {type: require, tool: [a, b]}, {type: max_calls, tool: '*', max: 1}]",
    "rules: [{type: count, tool: push, min: 2}]\nnets: [limit push to 1 per test]",
    "rules: [{type: count, tool: a, min: 2}, {type: forbids_after, tool: a, tools: [a]}]",
    "tool_rules: [{allow: ['mcp__*']}, {deny: ['mcp__x__delete*']}]",
    "nets: [require human-approval before deploy, limit deploy to 1 per session]",
])  # fmt: skip
def test_satisfiable_requirements_are_not_rejected(text: str) -> None:
    assert findings_on_texts([text]).refusals == ()


def test_the_example_policies_are_not_rejected() -> None:
    """Nor have they doubtful rules that could be removed."""
    for path in sorted(EXAMPLES.glob("*/policy.yaml")):
        findings = preflight(merge_policies(load_policies(path)))

        assert findings.refusals == (), path
