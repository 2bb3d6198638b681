"""Limits of time written with a unit, `max_duration: 10m`, as those in milliseconds."""

from __future__ import annotations

import re

from ..tree import MapNode, Node, ProblemReport, Scalar, describe, join
from .rewriting import replaced, scalar

DURATIONS = {"max_duration": "max_duration_ms", "max_idle": "max_idle_ms"}
"""The limits that may be written with a unit, and what they are in milliseconds."""
PART = r"(\d{1,12}(?:\.\d{1,6})?)\s*(ms|s|m|h|d)"
"""One amount of time; a duration is one or several of them, the larger first."""
_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_HINT = "write it as `90s`, `10m`, `2h` or `1h30m`"


def with_durations(root: MapNode, report: ProblemReport) -> MapNode:
    """A policy whose limits of time are in milliseconds; the node itself if they are."""
    limits = root.entries.get("limits")
    if not isinstance(limits, MapNode) or not DURATIONS.keys() & limits.entries.keys():
        return root
    entries: dict[str, Node] = {}
    spans = dict(limits.key_spans)
    for key, value in limits.entries.items():
        plain = DURATIONS.get(key, key)
        if plain != key and plain in limits.entries:
            message = f"`{key}` and `{plain}` are the same limit"
            report.add(message, limits.key_span(key), join(limits.path, key), "give one of them")
            continue
        entries[plain], spans[plain] = value if plain == key else _in_ms(value, report), limits.key_span(key)
    return replaced(root, {"limits": MapNode(entries, spans, limits.span, limits.path, limits.record)})


def _in_ms(node: Node, report: ProblemReport) -> Node:
    """A duration, or a limit whose `max` is one, in milliseconds; what is none is reported and counts as none."""
    if isinstance(node, MapNode) and "max" in node.entries:
        return replaced(node, {"max": _in_ms(node.entries["max"], report)})
    if isinstance(node, MapNode) or (isinstance(node, Scalar) and node.value is None):
        return node
    text = node.value.strip() if isinstance(node, Scalar) and isinstance(node.value, str) else ""
    parts = re.findall(PART, text)
    units = [unit for _, unit in parts]
    if not re.fullmatch(rf"(?:{PART}\s*)+", text) or units != sorted(set(units), key=_MS.__getitem__, reverse=True):
        report.add(f"expected a duration with its unit, got {describe(node)}", node.span, node.path, _HINT)
        return scalar(0, node)
    return scalar(sum(round(float(amount) * _MS[unit]) for amount, unit in parts), node)
