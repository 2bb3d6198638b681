"""Properties of loading: generated policies, damaged ones, and real ones with one token changed."""

import difflib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.policies import Policy, PolicyError, Problem, migrate, parse_policies
from proctor.policies.reading import check_policy

NAMES = st.sampled_from(["bash", "read", "mcp__*", "Pay?", "[ab]c", "true", "1"])
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
FILLED = TEXT.filter(lambda text: bool(text.strip()))
NUMBERS = st.integers(0, 10**6) | st.floats(0, 1e6)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
ACTIONS = st.sampled_from(["warn", "request_approval", "deny", "cancel"])
CONDITIONS = st.fixed_dictionaries(
    {"path": st.sampled_from(["$.a", "$['a b'].c[0]", "$.x[*]"])},
    optional={"equals": JSON, "exists": st.booleans(), "regex": st.just("^a+$"), "gt": NUMBERS},
).filter(lambda condition: len(condition) > 1)
SELECTORS = (
    NAMES
    | st.lists(NAMES, min_size=1, max_size=2)
    | st.fixed_dictionaries({"tool": NAMES, "where": st.lists(CONDITIONS, min_size=1, max_size=2)})
)
CARRIED = {"action": ACTIONS, "reason": TEXT, "when": st.lists(CONDITIONS, max_size=1)}
RULES = st.one_of(
    st.fixed_dictionaries({"type": st.just("before"), "first": SELECTORS, "then": SELECTORS}, optional=CARRIED),
    st.fixed_dictionaries({"type": st.just("count"), "tool": SELECTORS, "max": st.integers(0, 9)}, optional=CARRIED),
    st.fixed_dictionaries({"type": st.just("blocklist"), "tools": st.lists(NAMES, min_size=1)}, optional=CARRIED),
    st.fixed_dictionaries(
        {"type": st.just("precondition"), "tool": NAMES, "requires": st.just([{"prior": "x"}, {"turns_gte": 2}])}
    ),
)
POLICIES = st.fixed_dictionaries(
    {"name": FILLED},
    optional={
        "version": st.just(1),
        "on_violation": ACTIONS,
        "locked": st.booleans(),
        "limits": st.fixed_dictionaries({}, optional={"max_turns": NUMBERS, "max_cost_usd": NUMBERS}),
        "tool_rules": st.lists(st.fixed_dictionaries({"deny": st.lists(NAMES, min_size=1)}, optional=CARRIED)),
        "rules": st.lists(RULES, max_size=3),
        "nets": st.just(["block rm", "require a before b"]),
        "aliases": st.just({"Both": ["a", "b"]}),
        "metadata": st.dictionaries(TEXT, JSON, max_size=3),
    },
)
OTHERS = st.fixed_dictionaries(
    {"name": FILLED},
    optional={
        "sequences": st.lists(st.lists(NAMES, min_size=2, max_size=3), min_size=1, max_size=2),
        "tool_limits": st.dictionaries(NAMES, st.fixed_dictionaries({"max_per_session": st.integers(0, 5)})),
        "forbidden": st.lists(
            st.fixed_dictionaries({"sequence": st.lists(NAMES, min_size=1, max_size=2)}), max_size=2
        ),
        "contracts": st.lists(
            st.fixed_dictionaries(
                {"tool": NAMES, "preconditions": st.just([{"requires_prior_tool": "x", "description": "# y"}])}
            ),
            max_size=2,
        ),
    },
)


@settings(max_examples=50)
@given(POLICIES)
def test_an_encoded_policy_loads_as_an_equal_policy(document: dict[str, Any]) -> None:
    """As JSON, as YAML and as a mapping."""
    policies = parse_policies(document)
    (policy,) = policies
    check_policy(policy)

    assert policies == parse_policies(msgspec.to_builtins(policy))
    assert policies == parse_policies(json.dumps(document), format="json")
    assert policies == parse_policies(msgspec.json.encode(policy))


@settings(max_examples=50)
@given(POLICIES | OTHERS)
def test_a_migrated_policy_has_the_same_meaning_and_migrates_to_itself(document: dict[str, Any]) -> None:
    """In every spelling."""
    text = json.dumps(document)
    written = migrate(text)

    assert parse_policies(text) == parse_policies(written)
    assert migrate(written) == written


def places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every path within a document."""
    parts: list[tuple[Any, Any]] = []
    if isinstance(document, dict | list):
        parts = list(document.items() if isinstance(document, dict) else enumerate(document))
    return [path, *(place for part, child in parts for place in places(child, (*path, part)))]


def with_value_at(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The document with another value at a path."""
    if not path:
        return value
    copy = dict(document) if isinstance(document, dict) else list(document)
    copy[path[0]] = with_value_at(copy[path[0]], path[1:], value)
    return copy


def outcome(source: str | bytes, format: str | None = None) -> tuple[list[Policy], tuple[Problem, ...]]:
    """The loaded policies, or the reported problems."""
    try:
        return parse_policies(source, format=format), ()
    except PolicyError as error:
        return [], error.problems


@settings(max_examples=150)
@given(st.data())
def test_a_damaged_policy_loads_or_is_a_policy_error(data: st.DataObject) -> None:
    """Any part may be replaced by anything. The error has a position."""
    document = data.draw(POLICIES | OTHERS)
    for _ in range(data.draw(st.integers(1, 3))):
        document = with_value_at(document, data.draw(st.sampled_from(places(document))), data.draw(JSON))
    policies, problems = outcome(json.dumps(document))
    for policy in policies:
        check_policy(policy)

    assert all(problem.message and problem.line for problem in problems)


@settings(max_examples=150)
@given(st.data())
@pytest.mark.parametrize("format", [None, "json", "toml"])
def test_damaged_text_loads_or_is_a_policy_error(format: str | None, data: st.DataObject) -> None:
    """Bytes are removed and inserted anywhere."""
    text = {
        None: b"name: p\nrules:\n  - {type: before, first: [a, &b b], then: *b} # x\n  - tool: |\n      x\n",
        "json": b'{"name": "p", "rules": [{"type": "count", "tool": "\\u00e9", "max": 1e0}]}',
        "toml": b'name = "p"\na.\'b\' = [1, {c = """x"""}]\n[[rules]]\ntype = "count"\nmax = 0x10 # y\n',
    }[format]
    at = data.draw(st.integers(0, len(text)))
    cut = data.draw(st.integers(0, 5))
    damage = data.draw(st.binary(max_size=4) | st.sampled_from([b"[", b"{", b'"', b"'", b"#", b"\n", b"&a ", b"*b"]))
    policies, problems = outcome(text[:at] + damage + text[at + cut :], format=format)

    assert bool(policies) != bool(problems)


LONG = int(os.environ.get("PROCTOR_LONG") or 0)
USUAL = 200
"""Damaged texts of each policy in a long run, and by default."""

EVERYTHING = """\
version: 1
name: everything
on_violation: deny
locked: true
limits:
  max_tool_calls: {max: 50, scope: session, warn_at: 0.8, action: deny}
  max_cost_usd: 2.5
approval: {timeout_s: 60, on_timeout: cancel}
prices:
  my-model: {input_usd_per_mtok: 3, output_usd_per_mtok: 15}
aliases: {Both: [a, b]}
virtual_tools:
  - {tool: bash, path: $.command, match: 'git\\s+push', as: git-push}
tool_rules:
  - deny: [rm, {tool: bash, where: [{path: $.command, regex: sudo}]}]
    reason: security
  - allow: ["*"]
rules:
  - {type: count, tool: a, max: 3, within_turns: 2, of: attempted}
  - {type: before, first: a, then: b, first_must: started, key: $.id}
  - {type: after, trigger: a, then: b, within: 3, unpreventable: warn}
  - {type: eventually, tool: a, within: 9}
  - {type: never_after, trigger: a, forbidden: c, tell_model: no}
  - {type: forbids_after, tool: a, tools: [c]}
  - {type: sequence, tools: [a, b], strict: true}
  - {type: forbidden_sequence, sequence: [c, a], adjacency: any}
  - type: precondition
    tool: pay
    when: [{path: $.tenant, not_equals: test}]
    requires:
      - prior: find
        same: [{path: $.id, prior_output_path: $.id}]
        output: [{path: $.ok, equals: true}]
        pick: any
      - any_of: [{user_said: yes, in: latest}, {turns_gte: 2}]
  - {type: provenance, tool: pay, path: $.iban, from: [user_message, {tool: find, regex: '\\d+'}], except: [x]}
  - {type: loop, window: 5, threshold: 3}
  - {type: max_parallel, max: 2, description: not too many}
  - {type: circuit_breaker, consecutive: 3, total: 9}
nets:
  - require a before b
  - {line: block rm, action: cancel}
  - name: release
    places: [idle, tested]
    initial_marking: {idle: 1}
    capacity: {tested: 1}
    terminal_places: [tested]
    free_tools: [read]
    transitions:
      - {name: test, inputs: [idle], outputs: [tested], tools: [test], deferred: true}
      - {name: ship, type: manual, inputs: [tested], outputs: [idle], tools: [ship]}
"""
EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*/policy.yaml"))
TEXTS = {"everything": EVERYTHING} | {path.parent.name: path.read_text() for path in EXAMPLES}
FREE = {"metadata", "aliases", "prices", "initial_marking", "capacity", "labels", "equals", "not_equals"}
"""Keys whose values may have any keys."""
TELLING = {"output_of", "arg", "path"}
"""Keys that make an operand a reference and not a plain mapping."""


def keys(node: Any, *, free: bool = False) -> Iterator[Any]:
    """The nodes of the keys that the language defines."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if not free:
                yield key
            yield from keys(value, free=key.value in FREE)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from keys(value)


def misspelt(word: str, random: Random) -> str:
    """The word with a letter removed, doubled, changed or swapped with its neighbour."""
    at = random.randrange(len(word))
    slips = [
        word[:at] + word[at + 1 :],
        word[:at] + word[at] + word[at:],
        word[:at] + "q" + word[at + 1 :],
        word[: at + 1][:-1] + word[at : at + 2][::-1] + word[at + 2 :],
    ]
    slip = random.choice(slips)
    return slip if slip and slip != word else word + "z"


def problems_of(text: str) -> tuple[Problem, ...]:
    """The problems of a text, each with a position within it."""
    try:
        parse_policies(text)
    except PolicyError as error:
        lines = text.split("\n")
        for problem in error.problems:
            assert problem.message
            assert 1 <= (problem.line or 1) <= len(lines) + 1, problem
            assert 1 <= (problem.column or 1) <= max(map(len, lines)) + 2, problem
        return error.problems
    return ()


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_every_misspelt_key_is_an_error_at_its_position(text: str) -> None:
    """One problem has the key's line and column, and usually suggests the right word."""
    random, meant = Random(0), []
    nodes = list(keys(yaml.compose(text)))
    for node in nodes:
        wrong = misspelt(node.value, random)
        start, end = node.start_mark, node.end_mark
        found = problems_of(text[: start.index] + wrong + text[end.index :])
        here = [p for p in found if (p.line, p.column) == (start.line + 1, start.column + 1)]

        assert found, f"`{wrong}` was taken for `{node.value}`"
        assert here or (node.value in TELLING and start.line + 1 in [p.line for p in found]), (wrong, found)

        close = difflib.get_close_matches(node.value, [wrong], cutoff=0.75)
        if close and here:
            meant.append(any(f"`{node.value}`" in str(problem) for problem in here))

    assert sum(meant) > 0.8 * len(meant)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_several_misspelt_keys_are_all_reported(text: str) -> None:
    """Up to three, in one error."""
    random = Random(1)
    nodes = [node for node in keys(yaml.compose(text)) if node.value not in ("type", "name", "tool")]
    for _ in range(20):
        wrong, chosen = text, sorted(random.sample(nodes, 3), key=lambda node: -node.start_mark.index)
        for node in chosen:
            wrong = wrong[: node.start_mark.index] + node.value + "zq" + wrong[node.end_mark.index :]
        lines = {problem.line for problem in problems_of(wrong)}
        outer = {node.start_mark.line + 1 for node in chosen if node.start_mark.column == 0}

        assert lines & {node.start_mark.line + 1 for node in chosen}
        assert outer <= lines


@pytest.mark.parametrize("name", TEXTS)
def test_text_with_changed_tokens_loads_or_is_an_error_with_a_position(name: str) -> None:
    """Tokens are removed, doubled, swapped or moved to another policy; lines are removed, doubled or indented."""
    random, text = Random(name), TEXTS[name]
    others = [token for other in TEXTS.values() for token in tokens(other)]
    others += ["null", "~", "true", "-1", ".nan", "1e999", "0x1F", "!!binary x", "&a", "*a", "|", ">", "?", "<<: x"]
    for _ in range(LONG or USUAL):
        damaged = text
        for _ in range(random.randint(1, 3)):
            damaged = changed(damaged, others, random)
        problems_of(damaged)


def tokens(text: str) -> list[str]:
    """Words, numbers, signs and blanks."""
    return re.findall(r"[\w.$*]+|\s+|.", text)


def changed(text: str, others: list[str], random: Random) -> str:
    """The text with one change."""
    if random.random() < 0.3:
        lines = text.split("\n")
        at = random.randrange(len(lines))
        line = lines[at]
        lines[at : at + 1] = random.choice([[], [line, line], [" " + line], [line[1:]], ["\t" + line], [line, "---"]])
        return "\n".join(lines)
    parts = tokens(text) or [""]
    at = random.randrange(len(parts))
    there = random.randrange(len(parts))
    parts[at : at + 1] = random.choice([[], [parts[at]] * 2, [random.choice(others)], [parts[there]], ["\u00e9"]])
    return "".join(parts)
