"""Builds new nodes in the place of old ones, to rewrite other spellings."""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePath
from typing import Any

from ..limits import BUDGETS, LIMITS, PERCENT, duration_ms, spellings
from .schema import did_you_mean, snake_case
from .tree import ListNode, MapNode, Node, ProblemReport, Scalar, describe, join

_SPECIAL = re.compile(r"[*?\[\]]")
_NEIGHBOUR_KEYS = {"tell_llm": "tell_model"}
RULE_KEYS = ("action", "reason", "tell_model", "description", "when", "unpreventable")
"""Keys a rewritten clause may have besides its own."""


def scalar(value: Any, at: Node) -> Scalar:
    """A new scalar in the place of another node."""
    return Scalar(value, at.span, at.path)


def listing(items: list[Node], at: Node) -> ListNode:
    """A new list in the place of another node."""
    return ListNode(items, at.span, at.path)


def mapping(entries: Mapping[str, Node], at: Node) -> MapNode:
    """A new mapping in the place of another node, each key in the place of its value."""
    return MapNode(dict(entries), {key: value.span for key, value in entries.items()}, at.span, at.path)


def replaced(node: MapNode, entries: Mapping[str, Node], without: Iterable[str] = ()) -> MapNode:
    """A mapping with other entries, and without some; itself if it has these and none of those."""
    kept = {key: value for key, value in node.entries.items() if key not in without}
    if len(kept) == len(node.entries) and all(kept.get(key) is value for key, value in entries.items()):
        return node
    return MapNode({**kept, **entries}, node.key_spans, node.span, node.path, node.record)


def with_items(node: MapNode, key: str, change: Callable[[Node], Node]) -> MapNode:
    """A mapping with each item of the list at a key changed; itself if none is, or there is no list."""
    old = node.entries.get(key)
    items = [change(item) for item in old.items] if isinstance(old, ListNode) else []
    if not isinstance(old, ListNode) or all(new is item for new, item in zip(items, old.items, strict=True)):
        return node
    return replaced(node, {key: listing(items, old)})


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
    """The mappings in a list of clauses; reports anything else."""
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
            hint = did_you_mean(key, names) or f"expected one of: {', '.join(names)}"
            report.add(f"unknown key `{key}`", node.key_span(key), join(node.path, key), hint)


def required(node: MapNode, key: str, report: ProblemReport) -> Node | None:
    """The value at a required key."""
    if key not in node.entries:
        report.add(f"`{key}` is missing", node.span, node.path)
    return node.entries.get(key)


def carried(node: MapNode) -> dict[str, Node]:
    """The entries of a clause that every rule may carry."""
    return {key: value for key, value in node.entries.items() if key in RULE_KEYS}


def rule(type: str, entries: Mapping[str, Node], at: Node) -> MapNode:
    """A rule in the place of the clause that it replaces."""
    return mapping({"type": scalar(type, at), **entries}, at)


def stem(report: ProblemReport) -> str:
    """The file's name without its suffix; "" if the text is not from a file."""
    name = PurePath(report.file).stem
    return "" if name in ("", "-", "<stdin>") or not name.strip() else name


def own_name(root: MapNode, report: ProblemReport, otherwise: str) -> Node:
    """The name of a policy that states none: its file's, else `otherwise`."""
    if name := stem(report):
        return scalar(name, root)
    named = root.entries.get("name", root.entries.get("tool"))
    return named if isinstance(named, Scalar) and isinstance(named.value, str) else scalar(otherwise, root)


def prefix_glob(prefix: str) -> str:
    """The glob for every name that begins with a text, whose own `*`, `?` and brackets are literal."""
    return _SPECIAL.sub(lambda match: f"[{match[0]}]", prefix) + "*"


def is_net(root: MapNode) -> bool:
    """Whether a whole document is one net."""
    return bool({"places", "transitions"} & root.entries.keys()) and "nets" not in root.entries


def with_plain_nets(root: MapNode, report: ProblemReport) -> MapNode:
    """A policy whose nets have the keys of this language; the node itself if they do.

    A net in the other spelling denies a call, unless it or its policy states another action.
    """
    nets = root.entries.get("nets")
    if not isinstance(nets, ListNode) or not any(_is_foreign(net) for net in nets.items):
        return root
    blocks = "on_violation" not in root.entries
    lines = {net.value for net in nets.items if isinstance(net, Scalar)}
    items: list[Node] = []
    for net in nets.items:
        if not isinstance(net, MapNode) or not _is_foreign(net):
            items.append(net)
            continue
        plain = snake_keys(net, report)
        for line in _map_lines(plain.entries.get("tool_mapper"), report):
            if line.value not in lines:
                lines.add(line.value)
                items.append(line)
        action: dict[str, Node] = {"action": scalar("deny", net)} if blocks and "action" not in plain.entries else {}
        items.append(replaced(plain, action, without=("tool_mapper",)))
    return replaced(root, {"nets": listing(items, nets)})


def _is_foreign(net: Node) -> bool:
    return isinstance(net, MapNode) and any(key != snake_case(key) or key == "tool_mapper" for key in net.entries)


def _map_lines(node: Node | None, report: ProblemReport) -> list[Scalar]:
    """The `map` lines under `toolMapper`; reports anything else."""
    listed = node.items if isinstance(node, ListNode) else [] if node is None else [node]
    found = []
    for item in listed:
        if isinstance(item, Scalar) and isinstance(item.value, str) and item.value.lower().split()[:1] == ["map"]:
            found.append(item)
        else:
            hint = 'write `map bash.command "git push" as git-push`'
            report.add(f"expected a `map` line, got {describe(item)}", item.span, item.path, hint)
    return found


_OF_LIMITS, _OF_BUDGETS = spellings(LIMITS), spellings(BUDGETS)
_HINT = "write it as `90s`, `10m`, `2h` or `1h30m`"


def with_durations(root: MapNode, report: ProblemReport) -> MapNode:
    """A policy with durations in ms and percentages of an allowance as amounts; itself if it has neither."""
    root = with_items(root, "budgets", lambda budget: _plain(_of_allowance(budget, report), _OF_BUDGETS, report))
    limits = root.entries.get("limits")
    return root if limits is None else replaced(root, {"limits": _plain(limits, _OF_LIMITS, report)})


def as_written(message: str, node: MapNode) -> str:
    """An issue of a mapping, with the names of its limits as its author wrote them."""
    for written, plain in _OF_LIMITS.items():
        if written in node.key_spans and plain in node.entries:
            message = message.replace(f"`{plain}`", f"`{written}`")
    return message


def _plain(limits: Node, durations: Mapping[str, str], report: ProblemReport) -> Node:
    """A mapping of limits, with durations under their names in milliseconds; itself if it has none."""
    if not isinstance(limits, MapNode) or durations.keys().isdisjoint(limits.entries):
        return limits
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


def _of_allowance(budget: Node, report: ProblemReport) -> Node:
    """A budget with its amount as a number, if it is written as a percentage of its allowance."""
    if not isinstance(budget, MapNode):
        return budget
    whole = budget.entries.get("allowance")
    amount = whole.value if isinstance(whole, Scalar) else None
    changed: dict[str, Node] = {}
    for name in BUDGETS:
        node = budget.entries.get(name)
        found = (
            re.fullmatch(PERCENT, node.value) if isinstance(node, Scalar) and isinstance(node.value, str) else None
        )
        if found is None or node is None:
            continue
        if whole is None:
            report.add(f"`{name}` is a part of an `allowance`, and there is none", node.span, node.path)
        number = amount if isinstance(amount, (int, float)) and not isinstance(amount, bool) else 0
        changed[name] = scalar(number * float(found[1]) / 100, node)
    return replaced(budget, changed)


def _in_ms(node: Node, report: ProblemReport) -> Node:
    """A duration, or a limit whose `max` is one, in milliseconds; reports anything else and returns None."""
    if isinstance(node, MapNode) and "max" in node.entries:
        return replaced(node, {"max": _in_ms(node.entries["max"], report)})
    if isinstance(node, MapNode) or (isinstance(node, Scalar) and node.value is None):
        return node
    text = node.value if isinstance(node, Scalar) and isinstance(node.value, str) else ""
    length = duration_ms(text)
    if length is None:
        report.add(f"expected a duration with its unit, got {describe(node)}", node.span, node.path, _HINT)
    return scalar(length or 0, node)
