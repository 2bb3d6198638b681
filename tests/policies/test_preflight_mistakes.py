"""Mistakes that people make in policies, across rules and nets: what preflight says of each, and what shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from proctor.policies import load_policies, merge_policies, parse_policies, preflight
from proctor.policies.analysis import Findings

EXAMPLES = Path(__file__).parents[2] / "examples"
MISTAKES: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("mistakes.yaml").read_text())


def found(documents: list[str]) -> Findings:
    """The findings on a stack of documents named p0, p1 and so on."""
    policies = [p for n, text in enumerate(documents) for p in parse_policies(f"version: 1\nname: p{n}\n{text}")]
    return preflight(merge_policies(policies))


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: " / ".join(mistake["policies"]))
def test_a_mistake_is_named_with_what_shows_it(mistake: dict[str, Any]) -> None:
    """The first finding, as a person reads it."""
    finding = found(mistake["policies"])[0]

    assert str(finding) == mistake["says"]
    assert (finding.severity, finding.code) == (mistake["severity"], mistake["code"])
    assert list(finding.witness) == mistake["witness"]


@pytest.mark.parametrize(
    "text",
    [
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
    ],
)
def test_what_can_be_kept_is_no_mistake(text: str) -> None:
    """Demands that some session meets."""
    assert found([text]).refusals == ()


def test_the_policies_of_the_examples_are_not_refused() -> None:
    """And say nothing doubtful that their authors could take away."""
    for path in sorted(EXAMPLES.glob("*/policy.yaml")):
        findings = preflight(merge_policies(load_policies(path)))

        assert findings.refusals == (), path
