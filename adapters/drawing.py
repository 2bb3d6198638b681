"""Policies as SVG: the layout of nodes and arrows, in layers with few crossings, and the document.

One frame a section; below, the policy's other parts in words, and a legend.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias
from xml.sax.saxutils import escape, quoteattr

from proctor.policies import Monitor, Policy
from proctor.policies.diagram import Edge, GraphNode, Picture, Section, draw

FONT = "ui-sans-serif, system-ui, 'Segoe UI', Helvetica, Arial, sans-serif"
LETTER, SMALL = 7.4, 6.1
"""The width of a letter of the text, and of a note."""
LINE = 14
PLACE = 20
"""The radius of a place."""
DOTS = ((), ((0, 0),), ((-6, 0), (6, 0)), ((-6, 5), (6, 5), (0, -6)), ((-6, -6), (6, -6), (-6, 6), (6, 6)))
ACTIONS = {"cancel": "#b91c1c", "deny": "#c2410c", "request_approval": "#1d4ed8", "warn": "#a16207"}
"""The colour of a rule by what it does."""
STATES = {"open": "#15803d", "shut": "#b45309", "violated": "#b91c1c"}
FILLS = {"tool": "#e8eef6", "rule": "#ffffff", "fact": "#f5ecfd", "transition": "#334155"}
VIOLATED = "#fee2e2"
LONGEST = 44


def shown(text: str) -> str:
    """Text for display: cut if it is long, without characters that XML cannot hold."""
    clean = "".join(char if char.isprintable() else " " for char in text)
    return clean if len(clean) <= LONGEST else f"{clean[: LONGEST - 1]}\u2026"


def size_of(node: GraphNode) -> Size:
    notes = max((len(shown(note)) * SMALL for note in node.notes), default=0)
    text = len(shown(node.text)) * LETTER
    if node.shape == "place":
        below = LINE * (1 + len(node.notes))
        return Size(max(2 * PLACE, text, notes) + 4, 2 * PLACE + 2 * below, PLACE, PLACE / 2)
    width = max(text, notes) + 26
    height = 30 + LINE * len(node.notes)
    return Size(width, height, width / 2, height / 2 - 4)


def node_svg(node: GraphNode, box: Box) -> str:
    if node.shape == "place":
        return _place(node, box)
    colour = STATES.get(node.state) or (ACTIONS.get(node.action) if node.shape == "rule" else None) or "#64748b"
    wide = 2.5 if node.state else 1.4
    dashes = ' stroke-dasharray="5 3"' if node.state == "shut" else ""
    radius = {"tool": 6, "rule": box.size.height / 2, "fact": 2, "transition": 1}[node.shape]
    fill = VIOLATED if node.state == "violated" else FILLS[node.shape]
    ink = "#ffffff" if fill == FILLS["transition"] else "#0f172a"
    width, height = box.size.width, box.size.height
    rectangle = (
        f'<rect x="{box.x - width / 2:.1f}" y="{box.y - height / 2:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'rx="{radius:g}" fill="{fill}" stroke="{colour}" stroke-width="{wide}"{dashes}/>'
    )
    return rectangle + _rows(node, box.x, box.y - LINE * len(node.notes) / 2 + 4.5, ink)


def _rows(node: GraphNode, x: float, y: float, ink: str) -> str:
    weight = ' font-weight="600"' if node.shape in ("tool", "transition") else ""
    rows = [
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{ink}" text-anchor="middle"{weight}>{escape(shown(node.text))}</text>'
    ]
    for n, note in enumerate(node.notes, 1):
        rows.append(
            f'<text x="{x:.1f}" y="{y + LINE * n:.1f}" fill="{ink}" fill-opacity="0.75" font-size="11" '
            f'text-anchor="middle">{escape(shown(note))}</text>'
        )
    return "".join(rows)


def _place(node: GraphNode, box: Box) -> str:
    y = box.y
    circle = f'<circle cx="{box.x:.1f}" cy="{y:.1f}" r="{PLACE}" fill="#ffffff" stroke="#334155" stroke-width="1.6"/>'
    if node.tokens < len(DOTS):
        marks = "".join(
            f'<circle cx="{box.x + dx:.1f}" cy="{y + dy:.1f}" r="4.5" fill="#0f172a"/>'
            for dx, dy in DOTS[node.tokens]
        )
    else:
        marks = f'<text x="{box.x:.1f}" y="{y + 5:.1f}" text-anchor="middle" font-weight="600">{node.tokens}</text>'
    return circle + marks + _rows(node, box.x, y + PLACE + LINE, "#0f172a")


def arrow_svg(edge: Edge, points: Sequence[Point]) -> str:
    """One arrow, curved through its bends."""
    (x, y), *rest = points
    path = [f"M{x:.1f},{y:.1f}"]
    for to_x, to_y in rest:
        half = (x + to_x) / 2
        path.append(f"C{half:.1f},{y:.1f} {half:.1f},{to_y:.1f} {to_x:.1f},{to_y:.1f}")
        x, y = to_x, to_y
    colour, head = ("#b91c1c", "never") if edge.style == "forbidden" else ("#475569", "arrow")
    dashes = ' stroke-dasharray="4 4"' if edge.style == "weak" else ""
    line = (
        f'<path d="{" ".join(path)}" fill="none" stroke="{colour}" stroke-width="1.5"{dashes} '
        f'marker-end="url(#{head})"/>'
    )
    return line + (_label(edge.label, points) if edge.label else "")


def _label(text: str, points: Sequence[Point]) -> str:
    (x0, y0), (x1, y1) = points[0], points[1]
    return (
        f'<text x="{(x0 + x1) / 2:.1f}" y="{(y0 + y1) / 2 - 5:.1f}" font-size="11" text-anchor="middle" '
        f'fill="#475569">{escape(text)}</text>'
    )


MARKERS = (
    '<marker id="arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0,0 L10,5 L0,10 z" fill="#475569"/></marker>'
    '<marker id="never" viewBox="0 0 12 12" refX="12" refY="6" markerWidth="10" markerHeight="10" orient="auto">'
    '<path d="M2,2 L10,10 M10,2 L2,10" stroke="#b91c1c" stroke-width="2.4"/></marker>'
)
"""The heads of arrows: to what follows, and to what never may."""
PAD = 18
TITLE = 26
MARGIN = 20
WIDEST = 1_100
"""Frames are placed side by side up to this width."""
WORDS = {
    "cancel": "cancels the run",
    "deny": "denies",
    "request_approval": "asks a person",
    "warn": "warns",
    "open": "now: allowed, satisfied",
    "shut": "now: denied",
    "violated": "was violated",
}
"""The meanings of the colours."""


class _Frame(NamedTuple):
    """A section and the position of its frame."""

    section: Section
    laid: Laid
    x: float
    y: float
    width: float
    height: float


def draw_svg(policy: Policy, monitor: Monitor | None = None, session: Section | None = None) -> str:
    """A policy as an SVG picture; with a monitor, marked with its session's state. Raises PolicyError: the policy is
    wrong in itself.
    """
    picture = draw(policy, monitor, session)
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
    """A line of text without characters that XML cannot hold."""
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
    """The legend: the colours that occur and their meanings, as text, colour, dashed."""
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


COLUMN_GAP = 44
ROW_GAP = 20
PORT_GAP = 11
PART_GAP = 30
Point: TypeAlias = tuple[float, float]


class Size(NamedTuple):
    """The size of a node; arrows meet it `grip` left or right of its centre, and up to `reach` above or below."""

    width: float
    height: float
    grip: float
    reach: float


class Box(NamedTuple):
    """A node's centre and size."""

    x: float
    y: float
    size: Size

    @property
    def right(self) -> float:
        return self.x + self.size.width / 2

    @property
    def bottom(self) -> float:
        return self.y + self.size.height / 2


class Laid(NamedTuple):
    """A section laid out: nodes by id, the points each arrow goes through, and the size of all."""

    boxes: Mapping[str, Box]
    arrows: Sequence[tuple[Edge, tuple[Point, ...]]]
    width: float
    height: float


class _Part(NamedTuple):
    """One connected part: (layer, row) by number, bends after nodes; and each arrow's route."""

    places: Mapping[int, Point]
    routes: Sequence[tuple[int, ...]]


def lay_out(section: Section, sizes: Mapping[str, Size]) -> Laid:
    """Lay a section out; `sizes` are those of its nodes."""
    boxes: dict[str, Box] = {}
    arrows: list[tuple[Edge, tuple[Point, ...]]] = []
    top = width = 0.0
    for ids, edges in _parts(section):
        part_boxes, part_arrows = _placed(ids, edges, sizes)
        for id, box in part_boxes.items():
            boxes[id] = box._replace(y=box.y + top)
            width = max(width, box.right)
        arrows += [(edge, tuple((x, y + top) for x, y in points)) for edge, points in part_arrows]
        bends = [y for _, points in part_arrows for _, y in points]
        top += max([*(box.bottom for box in part_boxes.values()), *bends]) + PART_GAP
    return Laid(boxes, arrows, width, max(0.0, top - PART_GAP))


def _parts(section: Section) -> list[tuple[list[str], list[Edge]]]:
    """The connected parts of a graph, the largest first; lone nodes are one part together."""
    group = {node.id: node.id for node in section.nodes}

    def root(id: str) -> str:
        while group[id] != id:
            id = group[id]
        return id

    for edge in section.edges:
        group[root(edge.source)] = root(edge.target)
    found: dict[str, tuple[list[str], list[Edge]]] = {}
    for node in section.nodes:
        found.setdefault(root(node.id), ([], []))[0].append(node.id)
    for edge in section.edges:
        found[root(edge.source)][1].append(edge)
    lone = [id for ids, edges in found.values() if not edges for id in ids]
    joined = sorted((part for part in found.values() if part[1]), key=lambda part: -len(part[0]))
    return [*joined, *([(lone, [])] if lone else [])]


def _placed(
    ids: Sequence[str], edges: Sequence[Edge], sizes: Mapping[str, Size]
) -> tuple[dict[str, Box], list[tuple[Edge, tuple[Point, ...]]]]:
    if not edges:
        return _in_a_row(ids, sizes), []
    part = _layers(ids, edges)
    centre = _columns(ids, part, sizes)
    tallest = max(sizes[id].height for id in ids)
    highest = min(row for _, row in part.places.values())
    points = {
        n: (centre[layer], (row - highest) * (tallest + ROW_GAP) + tallest / 2)
        for n, (layer, row) in part.places.items()
    }
    boxes = {id: Box(*points[n], sizes[id]) for n, id in enumerate(ids)}
    routes = [[points[n] for n in route] for route in part.routes]
    return boxes, _arrows(boxes, edges, routes)


def _columns(ids: Sequence[str], part: _Part, sizes: Mapping[str, Size]) -> dict[float, float]:
    """The middle of each layer, as wide as its widest node."""
    widths = dict.fromkeys(sorted({layer for layer, _ in part.places.values()}), 0.0)
    for n, id in enumerate(ids):
        layer = part.places[n][0]
        widths[layer] = max(widths[layer], sizes[id].width)
    left, centre = 0.0, {}
    for layer, width in widths.items():
        centre[layer] = left + width / 2
        left += width + COLUMN_GAP
    return centre


def _in_a_row(ids: Sequence[str], sizes: Mapping[str, Size]) -> dict[str, Box]:
    boxes, left = {}, 0.0
    tallest = max(sizes[id].height for id in ids)
    for id in ids:
        boxes[id] = Box(left + sizes[id].width / 2, tallest / 2, sizes[id])
        left += sizes[id].width + ROW_GAP
    return boxes


def _arrows(
    boxes: Mapping[str, Box], edges: Sequence[Edge], bends: Sequence[Sequence[Point]]
) -> list[tuple[Edge, tuple[Point, ...]]]:
    """The points of arrows between the sides of nodes; several at one side are spread over it, in order."""
    sides: dict[tuple[str, int], list[tuple[float, int, int]]] = {}
    for n, (edge, between) in enumerate(zip(edges, bends, strict=True)):
        source, target = boxes[edge.source], boxes[edge.target]
        forward = 1 if target.x >= source.x else -1
        after, before = (between[0][1], between[-1][1]) if between else (target.y, source.y)
        sides.setdefault((edge.source, forward), []).append((after, n, 0))
        sides.setdefault((edge.target, -forward), []).append((before, n, 1))
    ends: dict[tuple[int, int], Point] = {}
    for (id, side), meeting in sides.items():
        box = boxes[id]
        apart = min(PORT_GAP, (box.size.reach * 2) / len(meeting))
        for m, (_, n, end) in enumerate(sorted(meeting)):
            ends[n, end] = (box.x + side * box.size.grip, box.y + (m - (len(meeting) - 1) / 2) * apart)
    return [(edge, (ends[n, 0], *bends[n], ends[n, 1])) for n, edge in enumerate(edges)]


def _layers(ids: Sequence[str], edges: Sequence[Edge]) -> _Part:
    from fast_sugiyama import from_edges

    number = {id: n for n, id in enumerate(ids)}
    pairs = [(number[edge.source], number[edge.target]) for edge in edges]
    # Each part alone, its nodes numbered from 0: the numbers of bends would meet those of other parts' nodes.
    ((positions, _, _, steps),) = from_edges(
        dict.fromkeys(pairs), vertex_spacing=1, dummy_vertices=True, dummy_size=0.7
    )
    lowest = max(y for _, (_, y) in positions)
    places = {int(n): (lowest - y, x) for n, (x, y) in positions}
    return _Part(places, [_bends(pair, _followers(steps or ()), len(ids)) for pair in pairs])


def _followers(steps: Iterable[tuple[int | str, int | str]]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for source, target in steps:
        found.setdefault(int(source), []).append(int(target))
    return found


def _bends(pair: tuple[int, int], followers: Mapping[int, Sequence[int]], nodes: int) -> tuple[int, ...]:
    """The numbers of the bends between two nodes."""
    for first in followers.get(pair[0], ()):
        route, at = [], first
        while at >= nodes:
            route.append(at)
            at = followers[at][0]
        if at == pair[1]:
            return tuple(route)
    return ()
