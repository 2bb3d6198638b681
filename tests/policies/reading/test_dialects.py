"""Other spellings in use: each loads as the standard rules, and `migrate` rewrites it as them."""

import json
from typing import Any

import pytest

from proctor.policies import Policy, PolicyError, migrate, parse_policies

from .test_load import problems_of

CONTRACT = """\
tool: issue_refund
preconditions:
- requires_prior_tool: check_eligibility
  resource:
    bind_from: arguments
    path: "$.order_id"
  with_output:
  - path: "$.eligible"
    equals: true
  description: "Eligibility must be checked for the same order"
- requires_step_count:
    gte: 3
forbids_after: [issue_refund, void_order]
"""


def standard(rules: list[dict[str, Any]], **rest: Any) -> list[Policy]:
    return parse_policies({"name": "p", **rest, "rules": rules})


def reported_problems(source: Any) -> list[str]:
    return [f"{problem.path}: {problem.message}" for problem in problems_of(source)]


@pytest.mark.parametrize(
    ("written", "rules"),
    [
        ({"limits": {"pay": {"maxPerSession": 1}}}, [{"type": "count", "tool": "pay", "max": 1}]),
        (
            {"forbidden": [{"sequence": [{"name_prefix": "a*[b]?"}]}]},
            [{"type": "forbidden_sequence", "sequence": ["a[*][[]b[]][?]*"]}],
        ),
        ({"rules": [{"type": "blocklist", "pattern": "admin_*"}]}, [{"type": "blocklist", "tools": ["admin_*"]}]),
    ],
    ids=["a limit of a tool beside others", "the letters of a prefix, literally", "a pattern as a list of one"],
)
def test_another_spelling_loads_as_these_rules(written: dict[str, Any], rules: list[dict[str, Any]]) -> None:
    """`limits` may hold limits of both kinds."""
    limits = {"max_turns": 3}

    assert standard(rules, limits=limits) == parse_policies(
        {"name": "p", **written, "limits": {**limits, **written.get("limits", {})}}
    )


def test_a_mistake_in_a_contract_is_reported_at_its_position() -> None:
    """The path is that of the contract, not of the resulting rule."""
    text = CONTRACT.replace('"$.eligible"', "eligible").replace("arguments", "output").replace("gte: 3", "gt: 3")
    assert [(p.line, p.path) for p in problems_of(text)] == [
        (5, "preconditions[0].resource.bind_from"),
        (8, "preconditions[0].with_output[0].path"),
        (12, "preconditions[1].requires_step_count"),
    ]


@pytest.mark.parametrize(("source", "complaint"), [
    *(({"contracts": [contract]}, f"contracts[0]{complaint}") for contract,
        complaint in (({"tool": "x"}, ": a contract needs `preconditions` or `forbids_after`"),
        ({"forbids_after": ["x"]}, ": `tool` is missing"),
        ({"tool": "x", "forbid_after": ["x"], "preconditions": []}, ".forbid_after: unknown key"),
        ({"tool": "x", "preconditions": [{}]}, ".preconditions[0]: `requires_prior_tool` is missing"),
        ({"tool": "x", "preconditions": "y"}, ".preconditions: expected a list of preconditions"),
        ("x", ": expected a mapping"))),
    ({"sequences": [["A"]]}, "sequences[0]: expected a list of at least two tools"),
    ({"sequences": "A"}, "sequences: expected a list of at least two tools"),
    ({"forbidden": {}}, "forbidden: expected a list of forbidden sequences"),
    ({"forbidden": [{"sequence": [{"name_prefix": 3}]}]}, "forbidden[0].sequence[0].name_prefix: expected text"),
    ({"forbidden": [{}]}, "forbidden[0]: `sequence` is missing"),
    ({"tool_limits": []}, "tool_limits: expected a mapping from tools to limits"),
    ({"tool_limits": {"x": 3}}, "tool_limits.x: expected a mapping"),
    ({"tool_limits": {"x": {}}}, "tool_limits.x: `max_per_session` is missing"),
    ({"tool_limits": {"x": {"max_per_session": "3"}}}, "tool_limits.x.max_per_session: expected a whole number"),
    ({"tool_limits": {"x": {"maxPerSession": 1, "max_per_session": 2}}}, "tool_limits.x.max_per_session: `max"),
])  # fmt: skip
def test_a_mistake_in_another_spelling_is_an_error(source: dict[str, Any], complaint: str) -> None:
    """The position is the one in the text. A contract without content is an error, not an absent rule."""
    assert any(found.startswith(complaint) for found in reported_problems({"name": "p", **source}))


def test_each_test_of_a_sequence_suite_is_a_policy() -> None:
    """The policy has the test's name, as a contract without a file has its tool's name."""
    assert [p.name for p in parse_policies(CONTRACT)] == ["issue_refund"]
    tests = [{"id": "p", "metric": "sequence_valid", "rules": [{"type": "require", "tool": "A"}]}]

    assert standard([{"type": "require", "tool": "A"}]) == parse_policies({"tests": tests})
    assert reported_problems({"tests": [{"id": "p", "metric": "f1"}]}) == [
        "tests[0].metric: the metric `f1` is not a policy"
    ]


OLD = """\
# Rules for refunds

name: refunds   # the name
forbidden:
  # exfiltration
  - sequence: [runPython, {name_prefix: "slack."}]   # never
    action: halt
    reason: security:x
tool_limits:
  processRefund: {max_per_session: 3, tell_model: "no: more"}  # three
sequences:
  - [A, B]
metadata: {a: "1", b: 'no', c: "#x", d: 1e5}
# the end
"""
NEW = """\
# Rules for refunds
version: 1
name: refunds  # the name
metadata: {a: '1', b: 'no', c: '#x', d: 100000.0}
rules:
  # exfiltration
  - type: forbidden_sequence  # never
    sequence: [runPython, slack.*]
    action: halt
    reason: 'security:x'
  - type: count  # three
    tool: processRefund
    max: 3
    tell_model: 'no: more'
  - type: before
    first: A
    then: B
# the end
"""
WORDS = [
    *("true", "1", "1e5", "0o7", "~", "", " a ", "a: b", "#", "- a", "it's", 'say "x"', "a\nb", "é😀", "\x00", "<<"),
    *("[", "*"),
]


def test_other_spellings_become_rules_and_keep_their_comments() -> None:
    """A comment stays with its clause."""
    assert migrate(OLD) == NEW


def test_a_migrated_policy_has_the_same_meaning() -> None:
    """Migrating it again changes nothing. YAML in the standard spelling keeps every blank.

    Text that does not load can't be migrated.
    """
    text = "name:   p\n\n\nrules: [ ]   # none\n"

    assert parse_policies(OLD) == parse_policies(NEW)
    assert (migrate(NEW), migrate(text)) == (NEW, text)
    with pytest.raises(PolicyError, match=r"old\.yaml:2:1: unknown key `limit`"):
        migrate("name: p\nlimit: 3\n", file="old.yaml")


def test_a_long_clause_is_written_as_a_block() -> None:
    """A line is longer than the limit only if one text is that long."""
    conditions = [{"path": f"$.field_number_{n}", "equals": "x" * 20} for n in range(6)]
    policy = {"name": "p", "tool_rules": [{"deny": [{"tool": "x", "where": conditions}]}]}
    written = migrate(json.dumps(policy))

    assert max(map(len, written.splitlines())) <= 100
    assert parse_policies(policy) == parse_policies(written)


def test_json_and_toml_become_yaml() -> None:
    document = {"policies": [{"name": "a", "tool_rules": [{"deny": ["x"]}]}, {"name": "b", "nets": ["block rm"]}]}
    toml = 'name = "p" # p\n[[tool_rules]]\ndeny = ["x"]\n'

    written = migrate(json.dumps(document))

    assert written.startswith("policies:\n  - version: 1\n    name: a\n    tool_rules:\n      - deny: [x]\n")
    assert parse_policies(document) == parse_policies(written)
    assert migrate(toml, format="toml") == "version: 1\nname: p\ntool_rules:\n  - deny: [x]\n"


@pytest.mark.parametrize("word", WORDS)
def test_every_text_survives_being_written_and_loaded(word: str) -> None:
    """Text is quoted if a plain word would have another meaning."""
    document = {"name": "p", "metadata": {"k": word, "list": [word], word: {word: word}}}

    assert parse_policies(document) == parse_policies(migrate(json.dumps(document)))


STANDARD = """\
version: 1
name: x
# money
budgets:   # ours
  - name: day   # by UTC
    # dollars
    max_cost_usd: 5   # five
    window: day
  - {name: hours, max_duration_ms: 5000}
"""


def test_budgets_in_the_standard_spelling_are_unchanged_by_migration() -> None:
    """Durations may have a unit, and comments stay."""
    with_units = STANDARD.replace("max_duration_ms: 5000", "max_duration: 1m") + "limits: {max_idle: 90s}   # idle\n"
    assert migrate(STANDARD) == STANDARD
    assert migrate(with_units) == with_units
    assert "max_idle_ms: 90000" in migrate(with_units + "sequences: [[A, B]]\n")


@pytest.mark.parametrize(("line", "words"), [
    ("budgets: [{name: d, max_duration: 5m, max_cost_usd: 3}]", "gives `max_cost_usd` and `max_duration`"),
    ("budgets: [{name: d, max_cost_usd: 3, max_idle: 5m}]", "unknown key `max_idle` at"),
    ("limits: {max_idel: 5m}", "did you mean `max_idle`?"),
])  # fmt: skip
def test_errors_name_the_keys_as_written(line: str, words: str) -> None:
    """Not the millisecond keys that they stand for."""
    with pytest.raises(PolicyError) as raised:
        parse_policies(f"name: x\n{line}\n")

    assert words in str(raised.value)
    assert "_ms`" not in str(raised.value)
