"""Nets with the keys of the format they come from: `initialMarking`, `terminalPlaces`, `freeTools`, `toolMapper`."""

from __future__ import annotations

from ..suggestions import snake_case
from ..tree import ListNode, MapNode, Node, ProblemReport, Scalar, describe
from .rewriting import listing, replaced, scalar, snake_keys


def is_net(root: MapNode) -> bool:
    """Whether a whole document is one net."""
    return bool({"places", "transitions"} & root.entries.keys()) and "nets" not in root.entries


def with_plain_nets(root: MapNode, report: ProblemReport) -> MapNode:
    """A policy whose nets have the keys of this language; the node itself if they do.

    A net in the other spelling refuses a call and lets the run go on, unless it or its policy says otherwise.
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
    """The `map` lines under `toolMapper`; anything else there is reported."""
    listed = node.items if isinstance(node, ListNode) else [] if node is None else [node]
    found = []
    for item in listed:
        if isinstance(item, Scalar) and isinstance(item.value, str) and item.value.lower().split()[:1] == ["map"]:
            found.append(item)
        else:
            hint = 'write `map bash.command "git push" as git-push`'
            report.add(f"expected a `map` line, got {describe(item)}", item.span, item.path, hint)
    return found
