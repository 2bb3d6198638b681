"""Checks on a policy as a whole, which no single record of it can make."""

from __future__ import annotations

from collections.abc import Iterator

from ..language.selectors import NameScope, selector_problems
from ..language.tools import person_problems
from ..rules.nets.shorthand import line_problems
from ..values.complaints import Complaint
from .node_checks import place_of
from .tree import ListNode, MapNode, Node, ProblemReport

_NAMED = (
    ("id", ("tool_rules", "rules"), ("id",)),
    ("name", ("nets",), ("name", "line")),
    ("name", ("budgets",), ("name",)),
)
"""What names the parts of a policy, where they stand, and under which keys."""


def check_whole(node: MapNode, report: ProblemReport) -> None:
    """Report what is wrong between the parts of a policy, whatever is wrong within them."""
    for where, message in _complaints(node):
        span, path = place_of(node, where)
        report.add(message, span, path)
    _check_ids(node, report)


def _complaints(node: MapNode) -> Iterator[Complaint]:
    aliases = node.entries.get("aliases")
    scope = NameScope(_names(aliases)) if isinstance(aliases, MapNode) else NameScope()
    for alias, tools in aliases.entries.items() if isinstance(aliases, MapNode) else ():
        yield from person_problems(alias, ("aliases", alias))
        if isinstance(tools, ListNode):
            names = [name for name in map(_text, tools.items) if name]
            if len(names) == len(tools.items):
                yield from selector_problems(names, ("aliases", alias))
    if circle := scope.circle():
        yield ("aliases",), f"aliases go round in a circle: {' -> '.join(circle)}"
        scope = NameScope()
    nets = node.entries.get("nets")
    for n, net in enumerate(nets.items if isinstance(nets, ListNode) else ()):
        if (line := _text(net)) is not None:
            yield from line_problems(line, ("nets", n), scope)
        elif isinstance(net, MapNode) and (line := _text(net.entries.get("line"))) and not [*line_problems(line)]:
            yield from line_problems(line, ("nets", n, "line"), scope)


def _names(aliases: MapNode) -> dict[str, list[str]]:
    """The aliases as far as they are lists of names."""
    listed = {alias: tools.items for alias, tools in aliases.entries.items() if isinstance(tools, ListNode)}
    return {alias: [name for item in items if (name := _text(item))] for alias, items in listed.items()}


def _text(node: Node | None) -> str | None:
    value = getattr(node, "value", None)
    return value if isinstance(value, str) else None


def _check_ids(node: MapNode, report: ProblemReport) -> None:
    """Report ids that two rules of one policy share, and names that two nets or budgets do, naming both places."""
    for what, parts, keys in _NAMED:
        seen: dict[str, str] = {}
        for rule in (rule for part in parts for rule in getattr(node.entries.get(part), "items", ())):
            named = _named(rule, keys)
            if named is None or (id := _text(named)) is None:
                continue
            if id in seen:
                report.add(f"the {what} `{id}` is taken by {seen[id]}", named.span, named.path)
            else:
                line = f" on line {named.span.line}" if named.span.line else ""
                seen[id] = f"`{rule.path}`{line}"


def _named(rule: Node, keys: tuple[str, ...]) -> Node | None:
    if isinstance(rule, MapNode):
        return next((rule.entries[key] for key in keys if key in rule.entries), None)
    return rule if "line" in keys else None
