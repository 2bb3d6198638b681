"""A picture as an SVG document: one frame a section, what is said in words below, and what the colours mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

from proctor.policies import Monitor, Policy
from proctor.policies.drawing import Picture, Section, draw

from .layout import Laid, lay_out
from .shapes import ACTIONS, FONT, LETTER, MARKERS, STATES, VIOLATED, arrow_svg, node_svg, shown, size_of

PAD = 18
TITLE = 26
MARGIN = 20
WIDEST = 1_100
"""Frames stand beside each other up to this width."""

WORDS = {
    "cancel": "ends the run",
    "deny": "refuses",
    "request_approval": "asks a person",
    "warn": "warns",
    "open": "now: may come, satisfied",
    "shut": "now: refuses, refused",
    "violated": "was violated",
}
"""What the colours mean."""


class _Frame(NamedTuple):
    """A section, and where its frame stands."""

    section: Section
    laid: Laid
    x: float
    y: float
    width: float
    height: float


def draw_svg(policy: Policy, monitor: Monitor | None = None) -> str:
    """A policy as an SVG picture; with a monitor, marked with where its session stands.

    Raises:
        PolicyError: the policy is wrong in itself.
    """
    picture = draw(policy, monitor)
    frames = _frames(picture.sections)
    bottom = max((frame.y + frame.height for frame in frames), default=MARGIN + TITLE)
    words = [shown_line(line) for line in picture.folded(int(WIDEST / LETTER))]
    legend = _legend(picture)
    width = max(
        [frame.x + frame.width for frame in frames]
        + [MARGIN + len(line) * LETTER for line in [*words, picture.title]]
        + [MARGIN + sum(_legend_width(text) for text, _, _ in legend)]
    )
    height = bottom + MARGIN + 18 * len(words) + (24 if legend else 0) + 8
    body = [
        f'<text x="{MARGIN}" y="{MARGIN + 6}" font-size="16" font-weight="700">{escape(shown(picture.title))}</text>',
        *(element for frame in frames for element in _frame_svg(frame)),
        *(
            f'<text x="{MARGIN}" y="{bottom + MARGIN + 8 + 18 * n:.1f}" fill="#334155">{escape(line)}</text>'
            for n, line in enumerate(words)
        ),
        *_legend_svg(legend, height - 12),
    ]
    return _document(picture.title, width + MARGIN, height, body)


def shown_line(line: str) -> str:
    """A line of words without what XML cannot hold."""
    return "".join(char if char.isprintable() or char == "\u00a0" else " " for char in line)


def _document(title: str, width: float, height: float, body: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label={quoteattr(shown(title))} '
        f'font-family="{FONT}" font-size="13">'
    )
    background = '<rect width="100%" height="100%" fill="#ffffff"/>'
    return "\n".join(
        [head, f"<title>{escape(shown(title))}</title>", f"<defs>{MARKERS}</defs>", background, *body, "</svg>", ""]
    )


def _frames(sections: Sequence[Section]) -> list[_Frame]:
    """Frames in rows, like words."""
    found: list[_Frame] = []
    x, y, row = float(MARGIN), float(MARGIN + TITLE), 0.0
    for section in sections:
        laid = lay_out(section, {node.id: size_of(node) for node in section.nodes})
        width = max(laid.width, len(shown(section.title) + section.action) * LETTER + 20) + 2 * PAD
        height = laid.height + TITLE + 2 * PAD
        if x > MARGIN and x + width > WIDEST:
            x, y, row = float(MARGIN), y + row + MARGIN, 0.0
        found.append(_Frame(section, laid, x, y, width, height))
        x, row = x + width + MARGIN, max(row, height)
    return found


def _frame_svg(frame: _Frame) -> Iterator[str]:
    yield (
        f'<rect x="{frame.x:.1f}" y="{frame.y:.1f}" width="{frame.width:.1f}" height="{frame.height:.1f}" rx="8" '
        'fill="#f8fafc" stroke="#cbd5e1"/>'
    )
    title = escape(shown(frame.section.title))
    colour = ACTIONS.get(frame.section.action, "#64748b")
    yield (
        f'<text x="{frame.x + PAD:.1f}" y="{frame.y + 24:.1f}" fill="#475569" font-weight="600">'
        f'{title}<tspan dx="8" fill="{colour}" font-weight="400">{escape(frame.section.action)}</tspan></text>'
    )
    yield f'<g transform="translate({frame.x + PAD:.1f} {frame.y + PAD + TITLE:.1f})">'
    for edge, points in frame.laid.arrows:
        yield arrow_svg(edge, points)
    for node in frame.section.nodes:
        yield node_svg(node, frame.laid.boxes[node.id])
    yield "</g>"


def _legend(picture: Picture) -> list[tuple[str, str, bool]]:
    """What the colours mean, of those that occur: text, colour, dashed."""
    nodes = [node for section in picture.sections for node in section.nodes]
    actions = {node.action for node in nodes} | {section.action for section in picture.sections}
    found = [(WORDS[name], colour, False) for name, colour in ACTIONS.items() if name in actions]
    if picture.standing:
        states = {node.state for node in nodes}
        found += [(WORDS[name], colour, name == "shut") for name, colour in STATES.items() if name in states]
    return found


def _legend_width(text: str) -> float:
    return 34 + len(text) * 6.4 + 14


def _legend_svg(legend: Sequence[tuple[str, str, bool]], y: float) -> Iterator[str]:
    x = float(MARGIN)
    for text, colour, dashed in legend:
        dashes = ' stroke-dasharray="5 3"' if dashed else ""
        fill = VIOLATED if text == WORDS["violated"] else "#ffffff"
        yield (
            f'<rect x="{x:.1f}" y="{y - 10:.1f}" width="22" height="12" rx="6" fill="{fill}" stroke="{colour}" '
            f'stroke-width="2"{dashes}/>'
        )
        yield f'<text x="{x + 28:.1f}" y="{y:.1f}" font-size="11" fill="#475569">{escape(text)}</text>'
        x += _legend_width(text)
