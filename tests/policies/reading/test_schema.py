"""The published JSON Schema agrees with the parser."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from proctor.policies import PolicyError, json_schema, parse_policies
from proctor.policies.rules import RULES

PACKS = [
    path
    for path in (Path(__file__).parents[3] / "adapters" / "cli" / "data" / "packs").glob("*.yaml")
    if not path.name.endswith(".test.yaml")
]
WHERE = [
    {"path": "$.amount", "lte": 5000},
    {"any_of": [{"path": "$.a", "in": [1, "x"]}, {"path": "$.b", "exists": False}]},
]
RULE_EXAMPLES: list[dict[str, Any]] = [
    {"type": "allowlist", "tools": ["read", {"tool": "bash", "where": WHERE}]},
    {"type": "blocklist", "tools": ["rm"], "when": [{"path": "$.tenant", "equals": "t"}]},
    {"type": "require", "tool": ["a", "b"]},
    {"type": "count", "tool": "x", "min": 1, "max": 3.0, "of": "completed", "key": "$.id"},
    {"type": "max_calls", "tool": "x", "max": 3},
    {"type": "before", "first": ["a", {"tool": "b"}], "then": "c", "first_must": "started"},
    {"type": "immediately_before", "first": "a", "then": "b"},
    {"type": "after", "trigger": "a", "then": "b", "within": 2},
    {"type": "eventually", "tool": "a", "within": 3},
    {"type": "never_after", "trigger": "a", "forbidden": {"tool": "b", "where": WHERE}, "action": "halt"},
    {"type": "sequence", "tools": ["a", "b"], "strict": True},
    {"type": "forbidden_sequence", "sequence": ["a", "b*"], "adjacency": "any"},
    {"type": "precondition", "tool": "pay", "requires": [{"prior": "check",
        "same": [{"path": "$.id", "prior_path": "$.order"}], "output": WHERE[:1]},
        {"any_of": [{"user_said": "yes", "in": "latest"}, {"turns_gte": 2}]}]},
    {"type": "forbids_after", "tool": "a", "tools": ["b"]},
    {"type": "provenance", "tool": "pay", "path": "$.iban", "from": ["user_message", {"tool": "l", "path": "$.i"}]},
    {"type": "loop", "window": 5, "threshold": 3},
    {"type": "max_parallel", "max": 2, "unpreventable": "warn"},
    {"type": "circuit_breaker", "consecutive": 3, "tell_model": "stop"},
]  # fmt: skip
GOOD: list[dict[str, Any]] = [
    {"name": "p"},
    {"version": 1, "name": "p", "on_violation": "deny", "locked": True, "enforcement": "required",
        "limits": {"max_turns": 3, "max_cost_usd": {"max": 0.5, "scope": "session", "warn_at": 0.8}},
        "tool_rules": [{"deny": ["bash"]}, {"allow": ["read", {"tool": ["a"], "where": WHERE}], "reason": "r"},
        {"deny": ["x"], "unpreventable": "warn"}],
        "nets": ["block rm", {"line": "limit push to 1 per test", "action": "deny"},
        {"name": "n", "places": ["a"], "transitions": [{"name": "t", "inputs": ["a"], "tools": ["x"]}]}],
        "virtual_tools": [{"tool": "bash", "path": "$.command", "match": "git", "as": "git"}],
        "aliases": {"Both": ["a", "b"]}, "approval": {"timeout_s": 0.5, "on_timeout": "cancel"},
        "prices": {"m": {"input_usd_per_mtok": 3, "output_usd_per_mtok": 15}}, "unpriced": "reject",
        "metadata": {"any": [None, {"x": 1.5}]}},
    {"name": "p", "rules": RULE_EXAMPLES},
    {"name": "p", "budgets": [{"name": "b", "max_total_tokens": "80%", "allowance": 100, "window": "week"}]},
    *(yaml.safe_load(path.read_text()) for path in PACKS),
    {"policies": [{"name": "a"}, {"name": "b", "rules": RULE_EXAMPLES[:2]}]},
]  # fmt: skip
BAD: list[Any] = [
    {},
    [],
    {"name": " "},
    {"name": "p", "limit": {}},
    {"name": "p", "version": 2},
    {"name": "p", "version": True},
    {"name": "p", "on_violation": "halt"},
    {"name": "p", "locked": "no"},
    {"name": "p", "limits": {"max_turns": "3"}},
    {"name": "p", "limits": {"max_turns": True}},
    {"name": "p", "limits": {"max_turns": -1}},
    {"name": "p", "limits": {"max_turns": None}},
    {"name": "p", "limits": {"max_turns": {"max": 1, "warn_at": 2}}},
    {"name": "p", "approval": {"timeout_s": 0}},
    {"name": "p", "tool_rules": [{"deny": "bash"}]},
    {"name": "p", "tool_rules": [{"deny": ["x"], "allow": ["x"]}]},
    {"name": "p", "tool_rules": [{"deny": [""]}]},
    {"name": "p", "rules": [{"type": "befor", "first": "a", "then": "b"}]},
    {"name": "p", "rules": [{"type": "before", "first": "a"}]},
    {"name": "p", "rules": [{"tool": "a"}]},
    {"name": "p", "rules": [{"type": "count", "tool": "x", "max": 1.5}]},
    {"name": "p", "aliases": {" ": ["a"]}},
    {"name": "p", "budgets": [{"name": "b", "max_total_tokens": "80", "allowance": 100}]},
    {"name": "p", "metadata": []},
    {"policies": []},
    {"policies": [{"name": "p", "limit": 1}]},
    {"policies": [{"name": "p"}], "name": "q"},
]


@pytest.fixture(scope="module", name="validator")
def make_validator() -> jsonschema.Draft202012Validator:
    """A validator of the published schema, parsed from its JSON text."""
    schema = json.loads(json.dumps(json_schema()))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_every_rule_family_has_an_example() -> None:
    assert {rule["type"] for rule in RULE_EXAMPLES} == set(RULES)


@pytest.mark.parametrize("document", GOOD)
def test_a_document_that_loads_satisfies_the_schema(
    document: dict[str, Any], validator: jsonschema.Draft202012Validator
) -> None:
    """In the standard spelling."""
    assert parse_policies(document)
    assert [error.message for error in validator.iter_errors(document)] == []


@pytest.mark.parametrize("document", BAD)
def test_a_document_that_violates_the_schema_does_not_load(
    document: Any, validator: jsonschema.Draft202012Validator
) -> None:
    """The schema's keys, types and bounds are those of the parser."""
    assert not validator.is_valid(document)
    with pytest.raises(PolicyError):
        parse_policies(json.dumps(document))


def test_every_definition_has_a_description() -> None:
    """Editors show it."""
    missing = [name for name, definition in json_schema()["$defs"].items() if not definition["description"]]

    assert missing == []
