"""Diagrams of policies: their contents, the state of a session, and Mermaid text that no input can break."""

import re
from typing import Any

import pytest

from proctor.policies import Policy, merge_policies, parse_policies
from proctor.policies.diagram import GraphNode, Picture, draw, draw_mermaid


def policy(*rules: dict[str, Any], **more: Any) -> Policy:
    return merge_policies(
        parse_policies({"version": 1, "name": "p", "on_violation": "deny", "rules": list(rules), **more})
    )


def paths(picture: Picture, section: int = 0) -> set[str]:
    """Every arrow, as the texts at its ends."""
    nodes = {node.id: node.text for node in picture.sections[section].nodes}
    return {f"{nodes[e.source]} {e.style} {nodes[e.target]}" for e in picture.sections[section].edges}


def node(picture: Picture, text: str, section: int = 0) -> GraphNode:
    (found,) = [node for node in picture.sections[section].nodes if node.text == text]
    return found


@pytest.mark.parametrize(("rule", "arrows"), [
    ({"type": "before", "first": ["a", "b"], "then": "c"}, {"a plain before", "b plain before", "before plain c"}),
    ({"type": "after", "trigger": "a", "then": "b", "within": 2, "action": "warn"},
        {"a weak then within 2 calls", "then within 2 calls weak b"}),
    ({"type": "forbidden_sequence", "sequence": ["a", "b", "c"]},
        {"a plain then next (1/2)", "then next (1/2) plain b", "b plain then next (2/2)",
        "then next (2/2) forbidden c"}),
    ({"type": "precondition", "tool": "b", "requires": [{"any_of": [{"prior": "a"}, {"user_said": "go"}]}]},
        {"a plain needs one of", "user said /go/ plain needs one of", "needs one of plain b"}),
])  # fmt: skip
def test_ordering_rules_are_drawn_between_their_tools(rule: dict[str, Any], arrows: set[str]) -> None:
    """The rule has a node, an arrow from the prerequisite, and one to the tool that follows or must not."""
    assert paths(draw(policy(rule))) == arrows


def test_rules_about_one_tool_are_drawn_in_its_node() -> None:
    """Counts and obligations."""
    picture = draw(policy({"type": "count", "tool": "a", "max": 3, "min": 1}, {"type": "require", "tool": "a"}))

    assert node(picture, "a").notes == ("at least 1", "at most 3", "required")


def test_clauses_without_order_are_listed_as_text() -> None:
    """Limits, lists and others, each with its action."""
    picture = draw(
        policy({"type": "loop", "window": 5, "threshold": 2}, limits={"max_turns": 9}, tool_rules=[{"deny": ["rm"]}])
    )

    assert picture.lines == (
        "max_turns: 9 (cancel)",
        "deny-1: no rm (deny)",
        "loop-1: * with one input fewer than 2 times in 5 calls (deny)",
    )


def test_a_net_is_drawn_with_its_tokens() -> None:
    """Places show tokens, transitions their tools, and arcs the number of tokens."""
    net = {
        "name": "n",
        "places": ["p", "q"],
        "initial_marking": {"p": 2},
        "capacity": {"q": 3},
        "transitions": [{"name": "t", "inputs": ["p", "p"], "outputs": ["q"], "tools": ["a", "b"], "type": "manual"}],
    }
    picture = draw(policy(nets=[net]))

    assert (node(picture, "p").tokens, node(picture, "q").notes) == (2, ("at most 3",))
    assert node(picture, "a or b").notes == ("t", "a person approves")
    assert [edge.label for edge in picture.sections[0].edges] == ["x2", ""]


def test_a_monitor_marks_the_state_of_its_session(drive: Any) -> None:
    """Allowed tools, satisfied and violated rules, the marking and the enabled transitions."""
    document = {
        "on_violation": "deny",
        "rules": [
            {"type": "before", "id": "login", "first": "a", "then": "b"},
            {"type": "immediately_before", "id": "review", "first": "c", "then": "d"},
            {"type": "never_after", "id": "never", "trigger": "a", "forbidden": "e"},
            {"type": "before", "id": "hint", "first": "x", "then": "b", "action": "warn"},
        ],
        "nets": ["limit f to 1 per session"],
    }
    session = drive(document)
    session.ok("a")
    session.ok("f")
    assert session.ask("e") == "deny"
    picture = draw(session.compiled.policy, session.monitor)
    rules = {n.notes[0]: n.state for n in picture.sections[0].nodes if n.shape == "rule"}

    assert {n.text for n in picture.sections[0].nodes if n.shape == "tool" and n.state == "shut"} == {"d", "e"}
    assert rules == {"login": "open", "review": "shut", "never": "violated", "hint": ""}
    assert (node(picture, "budget", 1).tokens, node(picture, "f", 1).state) == (0, "shut")


def test_mermaid_text_has_a_subgraph_for_each_section() -> None:
    """A forbidden arrow ends in a cross. Quotes, tags and line breaks become entities."""
    assert draw(policy()).sections == ()
    assert draw_mermaid(policy()) == "flowchart LR\n"
    odd = draw_mermaid(policy({"type": "before", "first": 'a"]\nclick x', "then": "<b onload=1>"}))
    assert '["a#quot;] click x"]' in odd
    assert "#lt;b onload=1#gt;" in odd
    assert all(line.count('"') % 2 == 0 for line in odd.splitlines())
    text = draw_mermaid(policy({"type": "never_after", "trigger": "a", "forbidden": "b"}, nets=["block c"]))

    assert text.startswith("flowchart LR\n")
    assert 's0t0["a"]:::tool' in text
    assert "s0r0 --x s0t1" in text
    assert 'subgraph s1["net block c"]' in text


def test_mermaid_text_is_wrapped() -> None:
    """No line is wider than a page, and no text is lost."""
    tools = [f"tool_{n}" for n in range(100)]
    text = draw_mermaid(merge_policies(parse_policies({"name": "p", "tool_rules": [{"allow": tools}]})))

    (label,) = re.findall(r'lines\["(.*)"\]', text)
    assert max(map(len, label.split("<br/>"))) <= 120
    assert re.findall(r"tool_\d+", label) == tools


def test_a_rule_without_arrows_is_a_note_at_its_tool() -> None:
    """A sequence of one tool, and the transition names of shorthand lines as of written nets."""
    picture = draw(policy({"type": "sequence", "tools": ["a"]}, {"type": "forbidden_sequence", "sequence": ["b"]}))
    lines = draw(policy(nets=["block c", "limit d to 2 per session"]))

    assert (node(picture, "a").notes, node(picture, "b").notes) == (("in order",), ("never",))
    assert (node(lines, "c").notes, node(lines, "d", 1).notes) == (("never",), ("spend",))
