"""`human-approval` as a prerequisite means that a person approved the evaluated call."""

from typing import Any

import pytest

from proctor.policies import PolicyError, draw, merge_policies, parse_policies, preflight

FAMILIES = {
    "before": {"type": "before", "first": "human-approval", "then": "deploy"},
    "immediately_before": {"type": "immediately_before", "first": "Human-Approval", "then": "deploy"},
    "precondition": {"type": "precondition", "tool": "deploy", "requires": [{"prior": "human-approval"}]},
    "any_of": {"type": "precondition", "tool": "deploy",
        "requires": [{"any_of": [{"prior": "human-approval"}, {"turns_gte": 99}]}]},
    "a key": {"type": "before", "first": "human-approval", "then": "deploy", "key": "$.to"},
}  # fmt: skip


@pytest.mark.parametrize("type", ["before", "immediately_before"])
def test_human_approval_and_an_alternative_tool_may_share_a_list(type: str, ruled: Any) -> None:
    decision = ruled({"type": type, "first": ["test", "human-approval"], "then": "deploy"}).propose("deploy")

    assert decision.violations[0].details["expected"] == "a person's approval or `test` before `deploy`"


@pytest.mark.parametrize("family", FAMILIES)
def test_preflight_and_diagrams_handle_human_approval(family: str) -> None:
    """The tool can be called, `human-approval` is no unknown tool, and the diagram shows the approvers."""
    rules = [FAMILIES[family], {"type": "require", "tool": "deploy"}]
    stack = merge_policies(parse_policies({"name": "p", "rules": rules}))
    drawn = [str(node) for section in draw(stack).sections for node in section.nodes]

    assert [str(finding) for finding in preflight(stack) if finding.severity == "refuse"] == []
    assert any("a person's approval" in node for node in drawn)
    assert not any("human-approval" in node.lower() for node in drawn)


@pytest.mark.parametrize("written", [
    {"rules": [{"type": "before", "first": "x", "then": "human-approval"}]},
    {"rules": [{"type": "before", "first": {"tool": "human-approval"}, "then": "x"}]},
    {"rules": [{"type": "after", "trigger": "x", "then": ["y", "human-approval"]}]},
    {"rules": [{"type": "require", "tool": "human-approval"}]},
    {"rules": [{"type": "count", "tool": "HUMAN-approval", "min": 1}]},
    {"rules": [{"type": "sequence", "tools": ["human-approval", "deploy"]}]},
    {"rules": [{"type": "never_after", "trigger": "human-approval", "forbidden": "x"}]},
    {"rules": [{"type": "precondition", "tool": "human-approval", "requires": [{"turns_gte": 1}]}]},
    {"rules": [{"type": "provenance", "tool": "x", "path": "$", "from": [{"tool": "human-approval", "path": "$"}]}]},
    {"tool_rules": [{"deny": ["human-approval"]}]},
    {"tool_rules": [{"allow": ["ls", "human-approval"]}]},
    {"aliases": {"Someone": ["human-approval"]}},
    {"aliases": {"human-approval": ["ask"]}},
    {"virtual_tools": [{"tool": "bash", "path": "$", "match": "x", "as": "human-approval"}]},
    {"nets": ["block human-approval"]},
    {"nets": ["limit human-approval to 1 per session"]},
    {"nets": ["limit push to 1 per human-approval"]},
    {"nets": ["require test before human-approval"]},
    {"nets": [{"name": "n", "places": [], "transitions": [{"name": "t", "tools": ["human-approval"]}]}]},
])  # fmt: skip
def test_human_approval_outside_a_prerequisite_is_an_error_with_a_hint(written: dict[str, Any]) -> None:
    """A rule about a tool that no agent has would always be satisfied, or always deny."""
    with pytest.raises(PolicyError) as caught:
        parse_policies({"name": "p", **written})

    assert ["use it in `first`" in problem.message for problem in caught.value.problems] == [True]


def test_human_approval_has_no_values_to_compare() -> None:
    """`same` and `output` belong to calls."""
    requirement = {"prior": ["human-approval", "test"], "same": [{"path": "$.to"}]}
    with pytest.raises(PolicyError, match="list both under `any_of`"):
        parse_policies(
            {"name": "p", "rules": [{"type": "precondition", "tool": "deploy", "requires": [requirement]}]}
        )
