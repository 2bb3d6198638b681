"""Properties of reading, over policies made up and then damaged."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.policies.errors import PolicyError, Problem
from proctor.policies.policy import Policy
from proctor.policies.reading import check_policy, parse_policies
from proctor.policies.reading.migrate import migrate

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
def test_a_policy_written_out_reads_back_equal(document: dict[str, Any]) -> None:
    """Records to builtins to records again; JSON, YAML and a mapping alike."""
    policies = parse_policies(document)
    (policy,) = policies
    check_policy(policy)

    assert policies == parse_policies(msgspec.to_builtins(policy))
    assert policies == parse_policies(json.dumps(document), format="json")
    assert policies == parse_policies(msgspec.json.encode(policy))


@settings(max_examples=50)
@given(POLICIES | OTHERS)
def test_a_migrated_policy_means_the_same_and_stays_as_it_is(document: dict[str, Any]) -> None:
    """Whatever spelling it was in."""
    text = json.dumps(document)
    written = migrate(text)

    assert parse_policies(text) == parse_policies(written)
    assert migrate(written) == written


def places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place within a document."""
    parts: list[tuple[Any, Any]] = []
    if isinstance(document, dict | list):
        parts = list(document.items() if isinstance(document, dict) else enumerate(document))
    return [path, *(place for part, child in parts for place in places(child, (*path, part)))]


def put(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The document with another value at a place."""
    if not path:
        return value
    copy = dict(document) if isinstance(document, dict) else list(document)
    copy[path[0]] = put(copy[path[0]], path[1:], value)
    return copy


def outcome(source: str | bytes, format: str | None = None) -> tuple[list[Policy], tuple[Problem, ...]]:
    """The policies that were read, or the problems that were reported."""
    try:
        return parse_policies(source, format=format), ()
    except PolicyError as error:
        return [], error.problems


@settings(max_examples=150)
@given(st.data())
def test_a_damaged_policy_gives_nothing_but_a_policy_error(data: st.DataObject) -> None:
    """Any part replaced by anything: it reads, or it is a PolicyError that names a place."""
    document = data.draw(POLICIES | OTHERS)
    for _ in range(data.draw(st.integers(1, 3))):
        document = put(document, data.draw(st.sampled_from(places(document))), data.draw(JSON))
    policies, problems = outcome(json.dumps(document))
    for policy in policies:
        check_policy(policy)

    assert all(problem.message and problem.line for problem in problems)


@settings(max_examples=150)
@given(st.data())
@pytest.mark.parametrize("format", [None, "json", "toml"])
def test_damaged_text_gives_nothing_but_a_policy_error(format: str | None, data: st.DataObject) -> None:
    """Bytes cut out and put in anywhere."""
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
