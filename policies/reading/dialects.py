"""Rewrites other spellings as this language, on the tree, so that each node keeps its place in the text."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from .rewriting import (
    RULE_KEYS,
    carried,
    clauses,
    expect_keys,
    is_net,
    listing,
    mapping,
    own_name,
    prefix_glob,
    replaced,
    required,
    rule,
    scalar,
    snake_keys,
    stem,
    with_durations,
    with_items,
    with_plain_nets,
)
from .schema import is_near, snake_case
from .tree import ListNode, MapNode, Node, ProblemReport, Scalar, describe

_CONTRACT_KEYS = ("tool", "preconditions", "forbids_after", *RULE_KEYS)
_PRIOR_KEYS = ("requires_prior_tool", "resource", "with_output", "description")
_STEP_KEYS = ("requires_step_count", "description")


def is_contract(node: MapNode) -> bool:
    """Whether a whole document is one contract."""
    keys = {snake_case(key) for key in node.entries}
    return bool({"preconditions", "forbids_after"} & keys) and not keys & {"rules", "contracts", "name"}


def rules_of_contract(node: MapNode, report: ProblemReport, *, blocks: bool) -> list[Node]:
    """The rules of one contract: one for its preconditions, one for what it forbids.

    `blocks`: no file around the contract states an action, so that it denies the call unless the contract says
    otherwise.
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
    """The path of `resource: {bind_from: arguments, path}`, the only kind of binding."""
    if not isinstance(node, MapNode):
        report.add("expected `{bind_from: arguments, path: path}`", node.span, node.path)
        return None
    node = snake_keys(node, report)
    expect_keys(node, ("bind_from", "path"), report)
    source = node.entries.get("bind_from")
    if source is not None and not (isinstance(source, Scalar) and source.value == "arguments"):
        report.add("a resource can only be bound from `arguments`", source.span, source.path)
    return required(node, "path", report)


_TEST_KEYS = ("id", "metric", "rules", "sequences", "description")
_FOREIGN = ("contracts", "forbidden", "tool_limits", "sequences")
_NAMED_BY_FILE = (frozenset({"rules"}), frozenset({"nets"}))
"""The only keys of documents that need no name."""
_HEAD = frozenset({"name", "version", "description", "metadata"})
"""Keys that documents of any kind have."""


def is_policy(root: MapNode, standard: Iterable[str]) -> bool:
    """Whether a document is meant as a policy: nothing but a head, or a key of one in any spelling, even if misspelt.

    `standard` are the keys of the standard spelling.
    """
    own = {*standard, *_FOREIGN, "policies"} - _HEAD
    keys = {snake_case(key) for key in root.entries}
    return is_contract(root) or is_net(root) or keys <= _HEAD or any(is_near(key, own) for key in keys)


def rewritten(root: MapNode, report: ProblemReport) -> MapNode:
    """One policy in the standard spelling; the node itself if it has that spelling already."""
    if is_contract(root):
        return policy_of_contracts([root], report)
    if is_net(root):
        root = mapping({"name": own_name(root, report, "net"), "nets": listing([root], root)}, root)
    root = with_plain_nets(with_durations(_with_tool_limits(_with_listed_limits(root, report)), report), report)
    added = _rules_of_foreign(root, report)
    root = with_items(root, "rules", lambda rule: _rule(rule, report))
    rules = root.entries.get("rules")
    changed: dict[str, Node] = {}
    foreign = any(key in root.entries for key in _FOREIGN)
    if "name" not in root.entries and (foreign or frozenset(root.entries) in _NAMED_BY_FILE):
        changed["name"] = own_name(root, report, "policy")
    if foreign and (rules is None or isinstance(rules, ListNode)):
        changed["rules"] = listing([*(rules.items if rules else ()), *added], rules or root)
    root = replaced(root, changed, without=_FOREIGN if changed else ())
    for part in ("tool_rules", "rules", "nets"):
        root = with_items(root, part, _with_when)
    return root


def policy_of_contracts(roots: Sequence[MapNode], report: ProblemReport) -> MapNode:
    """One policy of all the contracts of a file."""
    rules: list[Node] = []
    for root in roots:
        contract = snake_keys(root, report)
        if "tool" not in contract.entries and (name := stem(report)):
            contract = replaced(contract, {"tool": scalar(name, root)})
        rules += rules_of_contract(contract, report, blocks=True)
    return mapping({"name": own_name(roots[0], report, "contract"), "rules": listing(rules, roots[0])}, roots[0])


def policies_of_tests(root: MapNode, report: ProblemReport) -> list[MapNode]:
    """A policy for each test of a suite of sequence tests, `tests: [{id, metric: sequence_valid, rules}]`."""
    expect_keys(root, ("tests", "version", "name"), report)
    policies = []
    for test in clauses(root.entries["tests"], "tests", report):
        expect_keys(test, _TEST_KEYS, report)
        metric = test.entries.get("metric")
        if isinstance(metric, Scalar) and metric.value != "sequence_valid":
            report.add(f"the metric `{metric.value}` is not a policy", metric.span, metric.path)
        name = required(test, "id", report)
        entries = {"name": name} if name is not None else {}
        policies.append(replaced(test, entries, without=("id", "metric")))
    return policies


def _rules_of_foreign(root: MapNode, report: ProblemReport) -> list[Node]:
    rules: list[Node] = []
    if "contracts" in root.entries:
        for contract in clauses(root.entries["contracts"], "contracts", report):
            rules += rules_of_contract(contract, report, blocks="on_violation" not in root.entries)
    if "forbidden" in root.entries:
        for clause in clauses(root.entries["forbidden"], "forbidden sequences", report):
            rules.append(_forbidden(clause, report))
    if "tool_limits" in root.entries:
        rules += _tool_limits(root.entries["tool_limits"], report)
    if "sequences" in root.entries:
        rules += _sequences(root.entries["sequences"], report)
    return rules


def _forbidden(node: MapNode, report: ProblemReport) -> MapNode:
    expect_keys(node, ("sequence", "adjacency", "id", *RULE_KEYS), report)
    entries = {key: value for key, value in node.entries.items() if key in ("id", "adjacency")}
    if required(node, "sequence", report) is not None:
        entries["sequence"] = with_items(node, "sequence", lambda item: _glob(item, report)).entries["sequence"]
    return rule("forbidden_sequence", {**entries, **carried(node)}, node)


def _glob(node: Node, report: ProblemReport) -> Node:
    """An item of a sequence, `{name_prefix: p}` as a glob."""
    if not isinstance(node, MapNode):
        return node
    keys = snake_keys(node, report)
    prefix = keys.entries.get("name_prefix")
    if prefix is None:
        return node
    expect_keys(keys, ("name_prefix",), report)
    if not isinstance(prefix, Scalar) or not isinstance(prefix.value, str) or not prefix.value:
        report.add(f"expected text, got {describe(prefix)}", prefix.span, prefix.path)
        return scalar("*", prefix)
    return scalar(prefix_glob(prefix.value), prefix)


def _with_listed_limits(root: MapNode, report: ProblemReport) -> MapNode:
    """A policy with its `limits: [{max_turns: 3}, {max_idle: 2m}]` as one mapping."""
    limits = root.entries.get("limits")
    if not isinstance(limits, ListNode) or not limits.items:
        return root
    one = MapNode({}, {}, limits.span, limits.path)
    for item in limits.items:
        if not isinstance(item, MapNode):
            report.add(f"expected a mapping, got {describe(item)}", item.span, item.path, "write `max_turns: 3`")
            continue
        for key, value in item.entries.items():
            if key in one.entries:
                report.add(f"the limit `{key}` is given twice", item.key_span(key), item.path)
            one.entries[key], one.key_spans[key] = value, item.key_span(key)
    return replaced(root, {"limits": one})


def _with_tool_limits(root: MapNode) -> MapNode:
    """Limits with those per tool under a key of their own."""
    entries = {"tool_limits": root.entries["toolLimits"]} if "toolLimits" in root.entries else {}
    limits = root.entries.get("limits")
    per_tool: list[str] = []
    if isinstance(limits, MapNode):
        per_tool = [key for key, value in limits.entries.items() if _is_tool_limit(value)]
    if not isinstance(limits, MapNode) or not per_tool or "tool_limits" in root.entries or entries:
        return replaced(root, entries, without=("toolLimits",))
    rest = replaced(limits, {}, without=per_tool)
    entries["tool_limits"] = replaced(limits, {}, without=rest.entries)
    if rest.entries:
        return replaced(root, {**entries, "limits": rest})
    return replaced(root, entries, without=("limits",))


def _is_tool_limit(node: Node) -> bool:
    return isinstance(node, MapNode) and bool({"maxPerSession", "max_per_session"} & node.entries.keys())


def _tool_limits(node: Node, report: ProblemReport) -> list[Node]:
    if not isinstance(node, MapNode):
        report.add(f"expected a mapping from tools to limits, got {describe(node)}", node.span, node.path)
        return []
    rules: list[Node] = []
    for tool, item in node.entries.items():
        if not isinstance(item, MapNode):
            report.add(f"expected a mapping, got {describe(item)}", item.span, item.path)
            continue
        limit = snake_keys(item, report)
        expect_keys(limit, ("max_per_session", *RULE_KEYS), report)
        most = required(limit, "max_per_session", report)
        if most is not None:
            name = Scalar(tool, node.key_span(tool), item.path)
            rules.append(rule("count", {"tool": name, "max": most, **carried(limit)}, item))
    return rules


def _sequences(node: Node, report: ProblemReport) -> list[Node]:
    """`[[A, B, C]]`: A before B, B before C."""
    lists = node.items if isinstance(node, ListNode) else [node]
    rules: list[Node] = []
    for item in lists:
        if not isinstance(item, ListNode) or len(item.items) < 2:
            message = f"expected a list of at least two tools, got {describe(item)}"
            report.add(message, item.span, item.path, "write `sequences: [[First, Then]]`")
            continue
        rules += [rule("before", {"first": a, "then": b}, a) for a, b in pairwise(item.items)]
    return rules


def _rule(node: Node, report: ProblemReport) -> Node:
    """One rule with the fields of other formats in this language's spelling."""
    type = node.entries.get("type") if isinstance(node, MapNode) else None
    if not isinstance(node, MapNode) or not isinstance(type, Scalar):
        return node
    if type.value == "forbidden_sequence":
        return with_items(node, "sequence", lambda item: _glob(item, report))
    if type.value in ("blocklist", "allowlist") and "pattern" in node.entries and "tools" not in node.entries:
        pattern = node.entries["pattern"]
        return replaced(node, {"tools": listing([pattern], pattern)}, without=("pattern",))
    return node


def _with_when(node: Node) -> Node:
    """A clause with its `when: {context.user_role: standard}` as a list of conditions."""
    when = node.entries.get("when") if isinstance(node, MapNode) else None
    if not isinstance(node, MapNode) or not isinstance(when, MapNode) or not when.entries:
        return node
    if not all(key.startswith("context.") for key in when.entries):
        return node
    return replaced(node, {"when": _conditions(when)})


def _conditions(when: MapNode) -> ListNode:
    found: list[Node] = []
    for key, value in when.entries.items():
        path = Scalar("$." + key.removeprefix("context."), when.key_span(key), value.path)
        operator = "in" if isinstance(value, ListNode) else "equals"
        found.append(mapping({"path": path, operator: value}, value))
    return listing(found, when)
