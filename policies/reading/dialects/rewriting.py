"""What the rewriters of other spellings share: new nodes that stand where the old ones stood."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any

from ..suggestions import did_you_mean, snake_case
from ..tree import ListNode, MapNode, Node, ProblemReport, Scalar, describe, join

_SPECIAL = re.compile(r"[*?\[\]]")
_NEIGHBOUR_KEYS = {"tell_llm": "tell_model"}
RULE_KEYS = ("action", "reason", "tell_model", "description", "when", "unpreventable")
"""What a rewritten clause may carry besides its own keys."""


def scalar(value: Any, at: Node) -> Scalar:
    """A new scalar in the place of another node."""
    return Scalar(value, at.span, at.path)


def listing(items: list[Node], at: Node) -> ListNode:
    """A new list in the place of another node."""
    return ListNode(items, at.span, at.path)


def mapping(entries: Mapping[str, Node], at: Node) -> MapNode:
    """A new mapping in the place of another node; each key stands where its value does."""
    return MapNode(dict(entries), {key: value.span for key, value in entries.items()}, at.span, at.path)


def replaced(node: MapNode, entries: Mapping[str, Node], without: Iterable[str] = ()) -> MapNode:
    """A copy of a mapping with other entries, and without some."""
    kept = {key: value for key, value in node.entries.items() if key not in without}
    return MapNode({**kept, **entries}, node.key_spans, node.span, node.path, node.record)


def snake_keys(node: MapNode, report: ProblemReport) -> MapNode:
    """A mapping of a neighbouring format with its keys in the spelling of the language."""
    entries: dict[str, Node] = {}
    spans = {}
    for key, value in node.entries.items():
        plain = snake_case(key)
        plain = _NEIGHBOUR_KEYS.get(plain, plain)
        if plain in entries:
            report.add(f"`{key}` and `{plain}` mean the same", node.key_span(key), join(node.path, key))
        entries[plain], spans[plain] = value, node.key_span(key)
    return MapNode(entries, spans, node.span, node.path, node.record)


def clauses(node: Node, what: str, report: ProblemReport) -> list[MapNode]:
    """The mappings a list of clauses holds; anything else in it is reported."""
    if not isinstance(node, ListNode):
        report.add(f"expected a list of {what}, got {describe(node)}", node.span, node.path)
        return []
    found = []
    for item in node.items:
        if isinstance(item, MapNode):
            found.append(snake_keys(item, report))
        else:
            report.add(f"expected a mapping, got {describe(item)}", item.span, item.path)
    return found


def expect_keys(node: MapNode, allowed: Iterable[str], report: ProblemReport) -> None:
    """Report the keys of a clause that are not known there."""
    names = list(allowed)
    for key in node.entries:
        if key not in names:
            hint = did_you_mean(key, names) or f"known here: {', '.join(names)}"
            report.add(f"unknown key `{key}`", node.key_span(key), join(node.path, key), hint)


def required(node: MapNode, key: str, report: ProblemReport) -> Node | None:
    """The value at a key that must be there."""
    if key not in node.entries:
        report.add(f"`{key}` is missing", node.span, node.path)
    return node.entries.get(key)


def carried(node: MapNode) -> dict[str, Node]:
    """The entries of a clause that every rule may carry."""
    return {key: value for key, value in node.entries.items() if key in RULE_KEYS}


def rule(type: str, entries: Mapping[str, Node], at: Node) -> MapNode:
    """A rule in the place of the clause it is made from."""
    return mapping({"type": scalar(type, at), **entries}, at)


def stem(report: ProblemReport) -> str:
    """What the file is called, without its suffix; "" if the text is of no file."""
    name = PurePath(report.file).stem
    return "" if name in ("", "-", "<stdin>") or not name.strip() else name


def own_name(root: MapNode, report: ProblemReport, otherwise: str) -> Node:
    """The name of a policy that states none: its file's, else that of what it is about."""
    if name := stem(report):
        return scalar(name, root)
    named = root.entries.get("name", root.entries.get("tool"))
    return named if isinstance(named, Scalar) and isinstance(named.value, str) else scalar(otherwise, root)


def prefix_glob(prefix: str) -> str:
    """The glob for every name that begins with a text; its own `*`, `?` and brackets are meant literally."""
    return _SPECIAL.sub(lambda match: f"[{match[0]}]", prefix) + "*"
