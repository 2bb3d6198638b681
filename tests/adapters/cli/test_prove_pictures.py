"""`prove --graph`: the counterexample, and the state of each rule after it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

FLOW = """\
nets:
  - name: flow
    places: [start, built, done]
    initial_marking: {start: 1}
    terminal_places: [done]
    free_tools: [look]
    transitions:
      - {name: build, tools: [build], inputs: [start], outputs: [built]}
      - {name: ship, tools: [ship], inputs: [built], outputs: [done]}
"""
ORDER = "rules: [{id: ordered, type: before, first: test, then: push}]"
BOUND = "rules: [{id: bound, type: precondition, tool: pay, requires: [{prior: approve, same: [{path: $.id}]}]}]"


@pytest.mark.parametrize(("stack", "property", "last", "standing"), [
    pytest.param(ORDER, "rules: [{id: never, type: never_after, trigger: edit, forbidden: push}]",
        "3. push()|allow, running|against never", {"before|ordered|deny": "open",
        "never after|never|deny": "violated", "push": "shut", "edit": "open"}, id="an order"),
    pytest.param("rules: [{id: three, type: count, tool: pay, max: 3}]",
        "rules: [{id: two, type: count, tool: pay, max: 2}]", "3. pay()|allow, running|against two",
        {"pay|at most 3|at most 2": "shut"}, id="a count"),
    pytest.param(FLOW, "rules: [{id: looked, type: before, first: look, then: ship}]",
        "2. ship()|allow, running|against looked", {"●|done|end": "", "build|build": "shut", "ship|ship": "shut",
        "before|looked|deny": "violated"}, id="the net of a stack"),
    pytest.param("rules: [{id: ordered, type: before, first: build, then: ship}]", FLOW,
        "2. build()|allow, running|against flow", {"●|built": "", "build|build": "shut", "ship|ship": "open",
        "before|ordered|deny": "open"}, id="the net of a property"),
    pytest.param(BOUND, "rules: [{id: once, type: count, tool: pay, max: 1}]",
        "3. pay(id=#quot;id1#quot;)|allow, running|against once",
        {"needs, of the same|bound|deny": "open", "pay|at most 1": "shut", "approve": "open"},
        id="a precondition that binds"),
    pytest.param("rules: [{id: ordered, type: before, first: approve, then: pay}]", BOUND,
        "2. pay()|allow, running|against bound", {"before|ordered|deny": "open",
        "needs, of the same|bound|deny": "violated"}, id="a binding that is broken"),
    pytest.param("limits: {max_tool_calls: 2}", "rules: [{id: two, type: count, tool: pay, max: 2}]",
        "3. pay()|allow, running, turn 1 of run 2|against two", {"2. pay()|allow, completed, turn 1 of run 2": ""},
        id="a second run"),
    pytest.param("limits: {max_total_tokens: 3000}", "limits: {max_total_tokens: 2000}", "the end|max_total_tokens",
        {"a run uses 2,001 of #96;max_input_tokens#96;": ""}, id="what a run uses"),
    pytest.param("rules: [{id: wait, type: precondition, tool: pay, requires: [{user_said: yes!}]}]",
        "rules: [{id: none, type: blocklist, tools: [pay]}]",
        "1. pay()|the user writes #quot;yes!#quot;|allow, running|against none", {}, id="a message of the user"),
])  # fmt: skip
def test_a_diagram_shows_the_state_of_each_rule(
    cli: Any, place: Path, stack: str, property: str, last: str, standing: dict[str, str]
) -> None:
    """The last call with its violation, and tools, rules and nets of both policies in their state after it."""
    place.joinpath("stack.yaml").write_text(f"name: stack\non_violation: deny\n{stack}\n")
    place.joinpath("kept.yaml").write_text(f"name: kept\non_violation: deny\n{property}\n")
    cli("prove", "stack.yaml", "--property", "kept.yaml", "--graph", "found.mmd")
    shown = nodes_drawn(place.joinpath("found.mmd").read_text())

    assert {last: "violated", **standing}.items() <= shown.items(), shown


def nodes_drawn(mermaid: str) -> dict[str, str]:
    """The text of each node, with lines separated by `|`, and its state."""
    states = dict(re.findall(r"^ +class (\w+) (\w+)$", mermaid, re.MULTILINE))
    nodes = re.findall(r'^ +(\w+)\W+"(.*)"\W+:::\w+$', mermaid, re.MULTILINE)
    return {re.sub("<br/>", "|", re.sub("</?small>", "", text)): states.get(id, "") for id, text in nodes}


def test_a_diagram_of_several_stacks_says_whose_rule_is_violated(cli: Any, place: Path) -> None:
    """Two policies, and a base with a rule of the same name."""
    for name, rule in {
        "org": "{id: ordered, type: before, first: test, then: push}",
        "team": "{id: few, type: count, tool: push, max: 2}",
        "base": "{id: few, type: count, tool: push, max: 1}",
    }.items():
        place.joinpath(f"{name}.yaml").write_text(f"name: {name}\non_violation: deny\nrules: [{rule}]\n")
    cli("prove", "org.yaml", "team.yaml", "--no-looser-than", "base.yaml", "--graph", "found.mmd")
    shown = nodes_drawn(place.joinpath("found.mmd").read_text())

    assert shown["3. push()|allow, running|against base/few"] == "violated"
    assert (shown["before|ordered|deny"], shown["push|at most 2|at most 1"]) == ("open", "shut")


def test_a_diagram_has_the_context_of_the_session(cli: Any, place: Path) -> None:
    """One in which the rule does not apply."""
    closed = "rules: [{id: none, type: blocklist, tools: [pay], when: [{path: $.user_role, not_equals: admin}]}]"
    place.joinpath("stack.yaml").write_text(f"name: stack\non_violation: deny\n{closed}\n")
    cli("prove", "stack.yaml", "--reach", "pay", "--graph", "found.mmd")

    title = 'subgraph s0["the session, where the context is {#quot;user_role#quot;:null}"]'
    assert title in place.joinpath("found.mmd").read_text()
