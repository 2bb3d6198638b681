"""A picture as Mermaid text, for Markdown pages and issue trackers."""

from __future__ import annotations

from collections.abc import Iterator

from ..monitor.monitor import Monitor
from ..policy import Policy
from .draw import draw
from .picture import Edge, GraphNode, Picture, Section

SHAPES = {
    "tool": ('["', '"]'),
    "rule": ('(["', '"])'),
    "fact": ('>"', '"]'),
    "place": ('(("', '"))'),
    "transition": ('["', '"]'),
}
WIDEST = 120
"""A line of words is folded beyond so many letters."""
ARROWS = {"plain": "-->", "forbidden": "--x", "weak": "-.->"}
STYLES = {
    "tool": "fill:#eef2f7,stroke:#475569,color:#0f172a",
    "rule": "fill:#ffffff,stroke:#94a3b8,color:#334155",
    "fact": "fill:#faf5ff,stroke:#7e22ce,color:#3b0764",
    "place": "fill:#ffffff,stroke:#334155,color:#0f172a",
    "transition": "fill:#334155,stroke:#0f172a,color:#ffffff",
    "open": "stroke:#15803d,stroke-width:3px",
    "shut": "stroke:#b45309,stroke-width:3px,stroke-dasharray:4 3",
    "violated": "fill:#fee2e2,stroke:#b91c1c,stroke-width:3px,color:#7f1d1d",
    "note": "fill:#f8fafc,stroke:#cbd5e1,color:#334155,text-align:left",
}
UNSAFE = {
    '"': "#quot;",
    "#": "#35;",
    "&": "#amp;",
    "<": "#lt;",
    ">": "#gt;",
    "`": "#96;",
    "\\": "#92;",
    "\n": " ",
    "\r": " ",
}
"""What Mermaid or HTML would read, and how it is written so that they do not."""
MANY = 6
"""From how many tokens on a place shows their number."""


def draw_mermaid(policy: Policy, monitor: Monitor | None = None) -> str:
    """`policy` as a Mermaid flowchart; with a `monitor`, marked with where its session stands.

    Raises:
        PolicyError: the policy is wrong in itself.
    """
    return "\n".join(_written(draw(policy, monitor))) + "\n"


def _written(picture: Picture) -> Iterator[str]:
    yield "flowchart LR"
    for n, section in enumerate(picture.sections):
        yield f'  subgraph s{n}["{_text(section.title)}"]'
        yield "    direction LR"
        yield from (f"    {line}" for line in _section(section, f"s{n}"))
        yield "  end"
    if picture.lines:
        words = "<br/>".join(map(_text, picture.folded(WIDEST)))
        yield f'  lines["{words}"]:::note'
    used = {name for section in picture.sections for node in section.nodes for name in (node.shape, node.state)}
    for name, style in STYLES.items():
        if name in used or (name == "note" and picture.lines):
            yield f"  classDef {name} {style}"


def _section(section: Section, prefix: str) -> Iterator[str]:
    for node in section.nodes:
        yield _node(node, prefix)
    for edge in section.edges:
        yield _edge(edge, prefix)
    for node in section.nodes:
        if node.state:
            yield f"class {prefix}{node.id} {node.state}"


def _node(node: GraphNode, prefix: str) -> str:
    before, after = SHAPES[node.shape]
    rows = [_text(node.text), *(f"<small>{_text(note)}</small>" for note in node.notes)]
    if node.shape == "place":
        rows.insert(0, tokens(node.tokens) or " ")
    if node.shape == "rule" and node.action not in ("", "cancel"):
        rows.append(f"<small>{_text(node.action)}</small>")
    return f"{prefix}{node.id}{before}{'<br/>'.join(rows)}{after}:::{node.shape}"


def tokens(count: int) -> str:
    """Tokens as they are shown: dots, or from some on their number."""
    return "\u25cf" * count if count < MANY else f"\u25cf {count}"


def _edge(edge: Edge, prefix: str) -> str:
    label = f'|"{_text(edge.label)}"|' if edge.label else ""
    return f"{prefix}{edge.source} {ARROWS[edge.style]}{label} {prefix}{edge.target}"


def _text(text: str) -> str:
    """Text as it may stand in quotes: what Mermaid or HTML would read is written as entities."""
    return "".join(UNSAFE.get(char, char) for char in text)
