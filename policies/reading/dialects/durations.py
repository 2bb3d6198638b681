"""Limits of time written with a unit, `max_duration: 10m`, as those in milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeGuard

from ...values.durations import duration_ms
from ..tree import ListNode, MapNode, Node, ProblemReport, Scalar, describe, join
from .rewriting import listing, replaced, scalar

DURATIONS = {"max_duration": "max_duration_ms", "max_idle": "max_idle_ms"}
"""The limits that may be written with a unit, and what they are in milliseconds."""
_OF_BUDGETS = {"max_duration": "max_duration_ms"}
_HINT = "write it as `90s`, `10m`, `2h` or `1h30m`"


def with_durations(root: MapNode, report: ProblemReport) -> MapNode:
    """A policy whose limits and budgets of time are in milliseconds; the node itself if they are."""
    limits, budgets = root.entries.get("limits"), root.entries.get("budgets")
    changed: dict[str, Node] = {}
    if _has_durations(limits, DURATIONS):
        changed["limits"] = _plain(limits, DURATIONS, report)
    if isinstance(budgets, ListNode) and any(_has_durations(item, _OF_BUDGETS) for item in budgets.items):
        items = [
            _plain(item, _OF_BUDGETS, report) if _has_durations(item, _OF_BUDGETS) else item for item in budgets.items
        ]
        changed["budgets"] = listing(items, budgets)
    return replaced(root, changed) if changed else root


def as_written(message: str, node: MapNode) -> str:
    """A complaint about a mapping with the names of its limits as its author wrote them."""
    for written, plain in DURATIONS.items():
        if written in node.key_spans and plain in node.entries:
            message = message.replace(f"`{plain}`", f"`{written}`")
    return message


def _has_durations(node: Node | None, durations: Mapping[str, str]) -> TypeGuard[MapNode]:
    return isinstance(node, MapNode) and bool(durations.keys() & node.entries.keys())


def _plain(limits: MapNode, durations: Mapping[str, str], report: ProblemReport) -> MapNode:
    """A mapping of limits, each under its name in milliseconds."""
    entries: dict[str, Node] = {}
    spans = dict(limits.key_spans)
    for key, value in limits.entries.items():
        plain = durations.get(key, key)
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
