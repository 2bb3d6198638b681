"""A `when` that asks for what a session lacks is reported by all that judge recorded sessions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

POLICY = """
name: p
tool_rules: [{deny: [bash], id: no-bash, action: ACTION, when: [{path: $.user_role, not_equals: admin}]}]
"""
SESSION = {"id": "s", "events": [{"type": "tool_call", "id": "1", "name": "read", "input": {}}]}


@pytest.fixture
def files(place: Path) -> Path:
    """A policy and a session without a context."""
    place.joinpath("p.yaml").write_text(POLICY.replace("ACTION", "deny"))
    place.joinpath("s.jsonl").write_text(json.dumps(SESSION) + "\n")
    return place


@pytest.mark.parametrize("action", ["warn", "deny", "cancel"])
def test_eval_reports_it_as_a_rule_that_could_not_be_judged(cli: Any, files: Path, action: str) -> None:
    """Whatever the rule's action: nobody knows whether it holds."""
    files.joinpath("p.yaml").write_text(POLICY.replace("ACTION", action))
    ran = cli("eval", "--policy", "p.yaml", "--format", "sessions", "s.jsonl", "--json")
    (line,) = [json.loads(text) for text in ran.out.splitlines()]

    assert ran.code == 1
    assert line["unjudged"] == ["no-bash"]
    assert not line["passed"]
    assert line["violations"][0]["details"]["missing_context"] == ["$.user_role"]
    given = cli("eval", "--policy", "p.yaml", "--format", "sessions", "s.jsonl", "--context", "user_role=dev")
    assert given.code == 0


def test_eval_shows_it_in_words(cli: Any, files: Path) -> None:
    """With the field and the rule."""
    ran = cli("eval", "--policy", "p.yaml", "--format", "sessions", "s.jsonl")

    assert ran.code == 1
    assert "could not be judged" in " ".join(ran.out.split())
    assert "$.user_role" in ran.out
    assert "suggestion: give the context that it asks for: `--context NAME=VALUE`" in " ".join(ran.out.split())


def test_narrow_says_so_and_exits_with_1(cli: Any, files: Path) -> None:
    """What it prints may hide too little."""
    ran = cli("narrow", "s.jsonl", "--policy", "p.yaml", "--format", "sessions")

    assert ran.code == 1
    assert "`no-bash`" in ran.err
    assert (
        cli("narrow", "s.jsonl", "--policy", "p.yaml", "--format", "sessions", "--context", "user_role=x").code == 0
    )


def test_a_policy_test_without_the_context_fails(cli: Any, files: Path) -> None:
    """A run with such a context would not start."""
    files.joinpath("t.yaml").write_text(
        "policies: [p.yaml]\ntests:\n  - {name: one, calls: [{tool: read}]}\n"
        "  - {name: two, context: {user_role: dev}, calls: [{tool: read}]}\n"
    )
    ran = cli("test", "t.yaml")

    assert ran.code == 1
    assert "$.user_role" in ran.out
    assert "1 passed, 1 failed" in ran.out
