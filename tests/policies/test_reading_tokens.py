"""Real policies with one token changed: every slip is an error at its place, and none is a traceback."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from proctor.policies import PolicyError, parse_policies
from proctor.policies.errors import Problem

LONG = int(os.environ.get("PROCTOR_LONG") or 0)
USUAL = 300
"""Damaged texts of each policy in a long run, and usually."""

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
EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*/policy.yaml"))
TEXTS = {"everything": EVERYTHING} | {path.parent.name: path.read_text() for path in EXAMPLES}
FREE = {"metadata", "aliases", "prices", "initial_marking", "capacity", "labels", "equals", "not_equals"}
"""Under these any name may stand."""
TELLING = {"output_of", "arg", "path"}
"""These tell an operand that refers to something from one that is a mapping."""


def keys(node: Any, *, free: bool = False) -> Iterator[Any]:
    """The nodes of the keys that the language gives."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if not free:
                yield key
            yield from keys(value, free=key.value in FREE)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from keys(value)


def misspelt(word: str, random: Random) -> str:
    """The word with a letter lost, doubled, changed or exchanged with its neighbour."""
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
    """What is wrong with a text, each at a place within it."""
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
def test_every_misspelt_key_is_refused_where_it_stands(text: str) -> None:
    """Each key in turn: one problem has its line and column, and most often the word that was meant."""
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
    """Up to three at once, in one error."""
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
def test_any_change_of_tokens_reads_or_is_refused_at_a_place(name: str) -> None:
    """Tokens lost, doubled, exchanged, moved from one policy to another; lines lost, doubled, shifted."""
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
