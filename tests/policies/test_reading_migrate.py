"""Migrating: any spelling and format to YAML that means the same."""

from __future__ import annotations

import json

import pytest

from proctor.policies.errors import PolicyError
from proctor.policies.reading import parse_policies
from proctor.policies.reading.migrate import migrate

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


def test_other_spellings_become_rules_and_comments_stay() -> None:
    """A comment stays with the clause it stood at."""
    assert migrate(OLD) == NEW


def test_what_is_migrated_means_the_same() -> None:
    """And migrating it again changes nothing."""
    assert parse_policies(OLD) == parse_policies(NEW)
    assert migrate(NEW) == NEW


def test_yaml_in_the_standard_spelling_comes_back_as_it_is() -> None:
    """Not a blank is touched."""
    text = "name:   p\n\n\nrules: [ ]   # none\n"

    assert migrate(text) == text


def test_a_long_clause_is_written_as_a_block() -> None:
    """No line grows beyond what can be read, unless a text is that long."""
    conditions = [{"path": f"$.field_number_{n}", "equals": "x" * 20} for n in range(6)]
    policy = {"name": "p", "tool_rules": [{"deny": [{"tool": "x", "where": conditions}]}]}
    written = migrate(json.dumps(policy))

    assert max(map(len, written.splitlines())) <= 100
    assert parse_policies(policy) == parse_policies(written)


def test_json_and_toml_become_yaml() -> None:
    """Whatever the format, the policies are the same."""
    document = {"policies": [{"name": "a", "tool_rules": [{"deny": ["x"]}]}, {"name": "b", "nets": ["block rm"]}]}
    toml = 'name = "p" # p\n[[tool_rules]]\ndeny = ["x"]\n'

    written = migrate(json.dumps(document))

    assert written.startswith("policies:\n  - version: 1\n    name: a\n    tool_rules:\n      - deny: [x]\n")
    assert parse_policies(document) == parse_policies(written)
    assert migrate(toml, format="toml") == "version: 1\nname: p\ntool_rules:\n  - deny: [x]\n"


@pytest.mark.parametrize("word", WORDS)
def test_every_text_reads_back_as_itself(word: str) -> None:
    """Quotes are set where a plain word would mean something else."""
    document = {"name": "p", "metadata": {"k": word, "list": [word], word: {word: word}}}

    assert parse_policies(document) == parse_policies(migrate(json.dumps(document)))


def test_what_cannot_be_read_cannot_be_migrated() -> None:
    """The problems are those of reading it."""
    with pytest.raises(PolicyError, match=r"old\.yaml:2:1: unknown key `limit`"):
        migrate("name: p\nlimit: 3\n", file="old.yaml")


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


def test_standard_budgets_come_back_byte_for_byte() -> None:
    """Durations may have their unit; comments stay where they are."""
    with_units = STANDARD.replace("max_duration_ms: 5000", "max_duration: 1m") + "limits: {max_idle: 90s}   # idle\n"
    assert migrate(STANDARD) == STANDARD
    assert migrate(with_units) == with_units
    assert "max_idle_ms: 90000" in migrate(with_units + "sequences: [[A, B]]\n")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("budgets: [{name: d, max_duration: 5m, max_cost_usd: 3}]", "gives `max_cost_usd` and `max_duration`"),
        ("budgets: [{name: d, max_cost_usd: 3, max_idle: 5m}]", "unknown key `max_idle` at"),
        ("limits: {max_idel: 5m}", "did you mean `max_idle`?"),
    ],
)
def test_errors_name_the_keys_that_are_written(line: str, words: str) -> None:
    """Not those in milliseconds that they stand for."""
    with pytest.raises(PolicyError) as raised:
        parse_policies(f"name: x\n{line}\n")

    assert words in str(raised.value)
    assert "_ms`" not in str(raised.value)
