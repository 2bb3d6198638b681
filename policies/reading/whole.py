"""Checks on a policy as a whole, which no single record of it can make."""

from __future__ import annotations

from collections.abc import Iterator

from ..language.records import Complaint
from ..language.selectors import selector_problems
from ..model import Policy
from ..nets.shorthand import line_problems
from .fitting import place_of
from .nodes import MapNode, Report


def check_whole(policy: Policy, node: MapNode, report: Report) -> None:
    """Report what is wrong between the parts of a policy."""
    for where, message in _complaints(policy):
        span, path = place_of(node, where)
        report.add(message, span, path)
    check_ids(node, report)


def _complaints(policy: Policy) -> Iterator[Complaint]:
    for alias, tools in policy.aliases.items():
        yield from selector_problems(tools, ("aliases", alias))
    for n, net in enumerate(policy.nets):
        if isinstance(net, str):
            yield from line_problems(net, ("nets", n))


def check_ids(node: MapNode, report: Report) -> None:
    """Report ids that two rules of one policy share, naming both places."""
    seen: dict[str, str] = {}
    for part in ("tool_rules", "rules"):
        rules = node.entries.get(part)
        for rule in getattr(rules, "items", ()):
            named = rule.entries.get("id") if isinstance(rule, MapNode) else None
            id = getattr(named, "value", None)
            if named is None or not isinstance(id, str):
                continue
            if id in seen:
                report.add(f"the id `{id}` is taken by {seen[id]}", named.span, named.path)
            else:
                line = f" on line {named.span.line}" if named.span.line else ""
                seen[id] = f"`{rule.path}`{line}"
