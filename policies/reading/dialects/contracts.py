"""Contracts keyed by their tool, in the other spelling, to `precondition` and `forbids_after` rules."""

from __future__ import annotations

from ..suggestions import snake_case
from ..tree import MapNode, Node, ProblemReport, Scalar
from .rewriting import RULE_KEYS, carried, clauses, expect_keys, listing, mapping, required, rule, scalar, snake_keys

_CONTRACT_KEYS = ("tool", "preconditions", "forbids_after", *RULE_KEYS)
_PRIOR_KEYS = ("requires_prior_tool", "resource", "with_output", "description")
_STEP_KEYS = ("requires_step_count", "description")


def is_contract(node: MapNode) -> bool:
    """Whether a whole document is one contract."""
    keys = {snake_case(key) for key in node.entries}
    return bool({"preconditions", "forbids_after"} & keys) and not keys & {"rules", "contracts", "name"}


def rules_of_contract(node: MapNode, report: ProblemReport, *, blocks: bool) -> list[Node]:
    """The rules one contract stands for: one for its preconditions, one for what it forbids.

    `blocks`: nothing around the contract says what happens to a call that breaks it, so it is refused and the run
    goes on, unless the contract says otherwise.
    """
    expect_keys(node, _CONTRACT_KEYS, report)
    tool = required(node, "tool", report)
    if tool is None:
        return []
    shared = {**({"action": scalar("deny", node)} if blocks else {}), **carried(node)}
    rules: list[Node] = []
    if "preconditions" in node.entries:
        preconditions = node.entries["preconditions"]
        listed = clauses(preconditions, "preconditions", report)
        requires = [found for item in listed if (found := _requirement(item, report)) is not None]
        entries = {"tool": tool, "requires": listing([*requires], preconditions), **shared}
        if requires or not listed:
            rules.append(rule("precondition", entries, preconditions))
    if "forbids_after" in node.entries:
        forbidden = node.entries["forbids_after"]
        rules.append(rule("forbids_after", {"tool": tool, "tools": forbidden, **shared}, forbidden))
    if not {"preconditions", "forbids_after"} & node.entries.keys():
        report.add("a contract needs `preconditions` or `forbids_after`", node.span, node.path)
    return rules


def _requirement(node: MapNode, report: ProblemReport) -> MapNode | None:
    if "requires_step_count" in node.entries:
        expect_keys(node, _STEP_KEYS, report)
        count = node.entries["requires_step_count"]
        if not isinstance(count, MapNode) or list(count.entries) != ["gte"]:
            report.add("expected `{gte: number}`", count.span, count.path)
            return None
        return mapping({"turns_gte": count.entries["gte"], **_description(node)}, node)
    expect_keys(node, _PRIOR_KEYS, report)
    prior = required(node, "requires_prior_tool", report)
    if prior is None:
        return None
    entries = {"prior": prior}
    if "resource" in node.entries:
        bound = _bound_path(node.entries["resource"], report)
        if bound is not None:
            entries["same"] = listing([mapping({"path": bound}, bound)], node.entries["resource"])
    if "with_output" in node.entries:
        entries["output"] = node.entries["with_output"]
    return mapping({**entries, **_description(node)}, node)


def _description(node: MapNode) -> dict[str, Node]:
    return {key: value for key, value in node.entries.items() if key == "description"}


def _bound_path(node: Node, report: ProblemReport) -> Node | None:
    """The path of `resource: {bind_from: arguments, path}`, the only kind of binding there is."""
    if not isinstance(node, MapNode):
        report.add("expected `{bind_from: arguments, path: path}`", node.span, node.path)
        return None
    node = snake_keys(node, report)
    expect_keys(node, ("bind_from", "path"), report)
    source = node.entries.get("bind_from")
    if source is not None and not (isinstance(source, Scalar) and source.value == "arguments"):
        report.add("a resource can only be bound from `arguments`", source.span, source.path)
    return required(node, "path", report)
