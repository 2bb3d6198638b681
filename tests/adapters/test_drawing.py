"""SVG diagrams: well-formed with any names, without overlaps, and with each arrow from node to node."""

import re
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.adapters.drawing import Box, Size, draw_svg, lay_out
from proctor.policies import Policy, compile_policy, merge_policies, parse_policies
from proctor.policies.diagram import Edge, GraphNode, Section
from proctor.policies.language.selectors import is_person

SVG = "{http://www.w3.org/2000/svg}"

DOCUMENT = {
    "version": 1,
    "name": "p",
    "on_violation": "deny",
    "limits": {"max_turns": 5},
    "rules": [
        {"type": "before", "first": ["a", "b"], "then": "c"},
        {"type": "never_after", "trigger": "c", "forbidden": "a", "action": "cancel"},
        {"type": "max_calls", "tool": "z", "max": 2},
    ],
    "nets": ["require a before c", "limit push to 7 per test"],
}


def policy(**more: Any) -> Policy:
    return merge_policies(parse_policies({**DOCUMENT, **more}))


def texts(svg: str) -> set[str]:
    return {element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")}


def test_a_diagram_shows_tools_rules_nets_tokens_and_texts() -> None:
    shown = texts(draw_svg(policy()))

    assert {"a", "b", "c", "z", "before", "never after", "at most 2", "ready", "7", "max_turns: 5 (cancel)"} <= shown
    assert {"denies", "cancels the run"} <= shown


def test_with_a_monitor_the_legend_explains_the_marks() -> None:
    """Colours for the current state are explained only if they occur."""
    drawn = policy()

    assert "now: denied" in texts(draw_svg(drawn, compile_policy(drawn).monitor()))
    assert "now: denied" not in texts(draw_svg(drawn))


def test_the_same_policy_gives_the_same_diagram() -> None:
    """So diagrams can be kept under version control."""
    assert draw_svg(policy()) == draw_svg(policy())


def _names_a_tool(name: str) -> bool:
    return bool(name.strip()) and not is_person(name)


@given(st.lists(st.text(min_size=1).filter(_names_a_tool), min_size=2, max_size=4, unique=True))
@settings(max_examples=60)
def test_a_diagram_is_well_formed_with_any_names(names: list[str]) -> None:
    """Nothing in a name can end a tag or be invalid XML."""
    tools = [re.sub(r"[\[\]*?]", "x", name) for name in names]
    rules = [{"type": "before", "first": first, "then": tools[0]} for first in tools[1:]]

    assert ElementTree.fromstring(draw_svg(policy(name=tools[0], rules=rules, nets=[]))).tag == f"{SVG}svg"


def boxes_apart(one: Box, other: Box) -> bool:
    across = abs(one.x - other.x) >= (one.size.width + other.size.width) / 2
    return across or abs(one.y - other.y) >= (one.size.height + other.size.height) / 2


def pairs(boxes: list[Box]) -> Iterator[tuple[Box, Box]]:
    return ((one, other) for n, one in enumerate(boxes) for other in boxes[:n])


@given(
    st.integers(1, 9),
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=14),
    st.lists(st.integers(30, 200), min_size=9, max_size=9),
)
@settings(max_examples=150)
def test_nodes_do_not_overlap_and_arrows_join_their_sides(
    count: int, edges: list[tuple[int, int]], widths: list[int]
) -> None:
    """In any graph, with cycles and arrows in both directions."""
    nodes = tuple(GraphNode(id=f"n{n}", text="x", shape="tool") for n in range(count))
    joined = {(a % count, b % count) for a, b in edges if a % count != b % count}
    section = Section(
        title="t", nodes=nodes, edges=tuple(Edge(source=f"n{a}", target=f"n{b}") for a, b in sorted(joined))
    )
    sizes = {node.id: Size(widths[n], 30, widths[n] / 2, 11) for n, node in enumerate(nodes)}
    laid = lay_out(section, sizes)

    assert set(laid.boxes) == set(sizes)
    assert all(boxes_apart(one, other) for one, other in pairs(list(laid.boxes.values())))
    for edge, points in laid.arrows:
        for id, (x, y) in ((edge.source, points[0]), (edge.target, points[-1])):
            box = laid.boxes[id]

            assert abs(abs(x - box.x) - box.size.grip) < 0.01
            assert abs(y - box.y) <= box.size.height / 2
    assert all(box.right <= laid.width + 0.01 and box.bottom <= laid.height + 0.01 for box in laid.boxes.values())


def test_text_is_wrapped_to_the_width_of_a_page() -> None:
    """A long allow list makes the diagram longer, not wider."""
    tools = [f"tool_{n}" for n in range(100)]
    picture = draw_svg(policy(rules=[], nets=[], tool_rules=[{"allow": tools}]))

    width = float(ElementTree.fromstring(picture).attrib["width"])
    assert width <= 1_200
    assert set(tools) <= set(re.findall(r"tool_\d+", " ".join(texts(picture))))
