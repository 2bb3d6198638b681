"""What preflight reports: common mistakes, names that no tool has, limits, what is only observed, notes."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from proctor.policies import ToolCall, compile_policy, load_policies, merge_policies, parse_policies, preflight
from proctor.policies.analysis import Findings
from proctor.policies.events.run_context import Capabilities, RunContext, tool

from .test_all_checks import TENANT, WHERE, before, found, needs, refused, rules, the


def test_names_that_the_adapter_does_not_offer_are_reported_with_the_nearest() -> None:
    """Virtual names of its tools are offered."""
    document = rules(
        before("bsh", "push"),
        virtual_tools=[{"tool": "bash", "path": "$.command", "match": "git push", "as": "push"}],
    )
    finding = the("unknown_tool", found(document, capabilities=Capabilities(gate="all", tools=("bash", "read"))))

    assert (finding.witness, finding.suggestion) == (("bsh",), "did you mean `bash`?")


def test_rules_that_the_adapter_can_only_observe_are_reported() -> None:
    """Those it compiles into its own options are held; those that ask only signal, and some only record."""
    document = rules(
        before("a", "b"),
        {"type": "max_calls", "tool": "a", "max": 3, "action": "request_approval"},
        tool_rules=[{"deny": ["rm"]}, {"allow": ["*"], "action": "deny", "unpreventable": "warn"}],
    )
    some = Capabilities(gate="some", compiles=("deny",))
    findings = [f for f in found(document, capabilities=some) if f.code == "only_observed"]

    assert [finding.witness for finding in findings] == [("allow-1",), ("before-1",), ("max_calls-1",)]
    assert "only record it" in findings[0].message
    assert "only signal" in findings[2].message
    assert not found(document, capabilities=Capabilities(gate="all"))


WHEN = {"tool_rules": [{"deny": ["x"], "when": [TENANT, {"any_of": [{"path": "$.labels.env", "equals": "prod"}]}]}]}


@pytest.mark.parametrize(("context", "missing"), [
    ({}, ("$.tenant", "$.labels.env")),
    ({"tenant": None}, ("$.labels.env",)),
    ({"tenant": "x", "labels": {}}, ("$.labels.env",)),
    ({"labels": {"env": None}}, ("$.tenant",)),
    ({"tenant": None, "labels": {"env": None}}, ()),
])  # fmt: skip
def test_a_context_that_leaves_out_what_a_rule_asks_for_is_refused(
    context: dict[str, Any], missing: tuple[str, ...]
) -> None:
    """Whatever the condition says of it; None is an answer."""
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
def test_each_limit_is_reported_with_what_it_will_do_and_which_cannot_be_counted(
    capabilities: Capabilities, uncounted: list[str]
) -> None:
    """Once the adapter is known."""
    findings = found(LIMITS, capabilities=capabilities)
    effects = {f.rule: f.message for f in findings if f.code == "limit_effect"}

    assert found(LIMITS) == []
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
def test_a_name_that_no_tool_of_a_known_agent_has_is_reported_with_the_nearest(
    document: dict[str, Any], code: str, suggestion: str, others: bool
) -> None:
    """And refused where enforcement is required; other tools there may be do not hide a misspelt name."""
    agent = Capabilities(gate="all", tools=AGENT, other_tools=others)
    finding = the(code, found(document, capabilities=agent))

    assert (finding.severity, finding.suggestion) == ("report", suggestion)
    assert refused({**document, "enforcement": "required"}, capabilities=agent) == [code]
    assert found(document, capabilities=Capabilities(gate="all")) == found(document)


def test_a_tool_of_its_own_on_an_allow_list_is_not_misspelt_where_another_rule_names_it() -> None:
    """`send_direct_message` beside `send_message`: only where there may be other tools."""
    agent = Capabilities(gate="all", tools=AGENT, other_tools=True)
    allowed = {"tool_rules": [{"allow": ["bash", "todo_write"]}]}

    assert the("unknown_tool", found(allowed, capabilities=agent)).witness == ("todo_write",)
    assert found({**allowed, **rules(before("todo_write", "bash"))}, capabilities=agent) == []


@pytest.mark.parametrize("document", [
    {"tool_rules": [{"deny": ["bash", "READ", "todowrite", "mcp__x__*"]}]},
    {"tool_rules": [{"deny": [{"tool": "read", "where": [{"path": "$.path", "within": "."}]}]}]},
    {"tool_rules": [{"deny": [{"tool": "Read", "where": [{"path": "$.file_path", "within": "."}]}]}]},
    {"tool_rules": [{"deny": [{"tool": "mcp__x__search", "where": [WHERE]}]}]},
    rules(before("push", "bash"), virtual_tools=[{"tool": "bash", "path": "$.command", "match": "p", "as": "push"}]),
    rules(before("Look", "bash"), aliases={"Look": ["read"]}),
])  # fmt: skip
def test_names_of_the_client_portable_ones_and_virtual_ones_are_known(document: dict[str, Any]) -> None:
    """So are their inputs; of a tool of which no more than the name is known every input may be."""
    findings = found(document, capabilities=Capabilities(gate="all", tools=AGENT))

    assert [f.code for f in findings if f.code.startswith("unknown")] == []


def test_where_there_may_be_other_tools_a_strange_name_is_not_called_unknown() -> None:
    """It may be one of theirs; where all tools are known it is none."""
    document = {"tool_rules": [{"deny": ["issue_refund", "mcp__y__*", "glob"]}]}

    assert found(document, capabilities=Capabilities(gate="all", tools=AGENT, other_tools=True)) == []
    assert the("unknown_tool", found(document, capabilities=Capabilities(gate="all", tools=AGENT))).witness == (
        "issue_refund", "mcp__y__*", "glob",
    )  # fmt: skip


@pytest.mark.parametrize(("line", "suggestion"), [
    ("limit deploy to 1 per test", "add `require test before deploy`"),
    ("limit deploy to 3 per test", "add `require test before deploy`"),
    ("limit deploy to 3 per session", None),
    ("limit deploy to 0 per test", None),
    ("require test before deploy", None),
])  # fmt: skip
def test_a_limit_per_action_that_starts_full_is_noted(line: str, suggestion: str | None) -> None:
    """With the line that was probably meant."""
    notes = [f for f in found({"nets": [line]}) if f.code == "starts_full"]

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
def test_the_note_is_not_given_where_the_meant_line_stands_already(
    beside: dict[str, Any], noted: bool, another: bool
) -> None:
    """In the same policy or in another of the stack, whatever it is written as; where it is weaker, it is given."""
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
def test_a_when_that_does_not_hold_for_none_is_noted(condition: dict[str, Any], noted: bool) -> None:
    """As the monitor judges: what the note says is so, and what it suggests holds."""
    policy = merge_policies(parse_policies({"name": "p", "tool_rules": [{"deny": ["bash"], "when": [condition]}]}))
    answer = compile_policy(policy).monitor(RunContext(user_role=None)).propose(ToolCall(id="1", name="bash")).action
    notes = [f for f in preflight(policy) if f.code == "none_in_context"]

    assert bool(notes) == noted
    assert answer == ("cancel" if "not" in condition else "allow")


EXAMPLES = Path(__file__).parents[3] / "examples"
MISTAKES: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("mistakes.yaml").read_text())


def found_in(documents: list[str]) -> Findings:
    """The findings on a stack of documents named p0, p1 and so on."""
    policies = [p for n, text in enumerate(documents) for p in parse_policies(f"version: 1\nname: p{n}\n{text}")]
    return preflight(merge_policies(policies))


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: " / ".join(mistake["policies"]))
def test_a_mistake_is_named_with_what_shows_it(mistake: dict[str, Any]) -> None:
    """The first finding, as a person reads it."""
    finding = found_in(mistake["policies"])[0]

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
def test_what_can_be_kept_is_no_mistake(text: str) -> None:
    """Demands that some session meets."""
    assert found_in([text]).refusals == ()


def test_the_policies_of_the_examples_are_not_refused() -> None:
    """And say nothing doubtful that their authors could take away."""
    for path in sorted(EXAMPLES.glob("*/policy.yaml")):
        findings = preflight(merge_policies(load_policies(path)))

        assert findings.refusals == (), path
