"""Where the nodes and arrows of a section stand: layers from left to right, few crossings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from proctor.policies.diagram import Edge, Section

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
    """Where a node stands: its centre and its size."""

    x: float
    y: float
    size: Size

    @property
    def right(self) -> float:
        """Where it ends."""
        return self.x + self.size.width / 2

    @property
    def bottom(self) -> float:
        """Where it ends."""
        return self.y + self.size.height / 2


class Laid(NamedTuple):
    """A section laid out: nodes by id, the points each arrow goes through, and the size of all."""

    boxes: Mapping[str, Box]
    arrows: Sequence[tuple[Edge, tuple[Point, ...]]]
    width: float
    height: float


class _Part(NamedTuple):
    """One connected part: (layer, row) by number, those past the nodes are bends; and each arrow's way."""

    places: Mapping[int, Point]
    ways: Sequence[tuple[int, ...]]


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
    ways = [[points[n] for n in way] for way in part.ways]
    return boxes, _arrows(boxes, edges, ways)


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
    """From side to side of two nodes; arrows that meet a side together are spread over it, in order."""
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
        way, at = [], first
        while at >= nodes:
            way.append(at)
            at = followers[at][0]
        if at == pair[1]:
            return tuple(way)
    return ()
