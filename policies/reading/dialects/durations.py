"""Limits of time written with a unit, `max_duration: 10m`, as those in milliseconds."""

from __future__ import annotations

from ...values.durations import duration_ms
from ..tree import ListNode, MapNode, Node, ProblemReport, Scalar, describe, join
from .rewriting import listing, replaced, scalar

DURATIONS = {"max_duration": "max_duration_ms", "max_idle": "max_idle_ms"}
"""The limits that may be written with a unit, and what they are in milliseconds."""
_HINT = "write it as `90s`, `10m`, `2h` or `1h30m`"


def with_durations(root: MapNode, report: ProblemReport) -> MapNode:
    """A policy whose limits and budgets of time are in milliseconds; the node itself if they are."""
    limits, budgets = root.entries.get("limits"), root.entries.get("budgets")
    changed: dict[str, Node] = {}
    if isinstance(limits, MapNode) and DURATIONS.keys() & limits.entries.keys():
        changed["limits"] = _plain(limits, report)
    if isinstance(budgets, ListNode):
        changed["budgets"] = listing(
            [_plain(item, report) if isinstance(item, MapNode) else item for item in budgets.items], budgets
        )
    return replaced(root, changed) if changed else root


def _plain(limits: MapNode, report: ProblemReport) -> MapNode:
    """A mapping of limits, each under its name in milliseconds."""
    entries: dict[str, Node] = {}
    spans = dict(limits.key_spans)
    for key, value in limits.entries.items():
        plain = DURATIONS.get(key, key)
        if plain != key and plain in limits.entries:
            message = f"`{key}` and `{plain}` are the same limit"
            report.add(message, limits.key_span(key), join(limits.path, key), "give one of them")
            continue
        entries[plain], spans[plain] = value if plain == key else _in_ms(value, report), limits.key_span(key)
    return MapNode(entries, spans, limits.span, limits.path, limits.record)


def _in_ms(node: Node, report: ProblemReport) -> Node:
    """A duration, or a limit whose `max` is one, in milliseconds; anything else is reported and counts as None."""
    if isinstance(node, MapNode) and "max" in node.entries:
        return replaced(node, {"max": _in_ms(node.entries["max"], report)})
    if isinstance(node, MapNode) or (isinstance(node, Scalar) and node.value is None):
        return node
    text = node.value if isinstance(node, Scalar) and isinstance(node.value, str) else ""
    length = duration_ms(text)
    if length is None:
        report.add(f"expected a duration with its unit, got {describe(node)}", node.span, node.path, _HINT)
    return scalar(length or 0, node)
