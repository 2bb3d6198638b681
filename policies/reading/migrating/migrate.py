"""Any accepted format and spelling to YAML of this language."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..formats.json_text import read_json
from ..formats.source import SUFFIXES, read_source
from ..reader import parse_policies, policy_nodes
from ..tree import NOWHERE, ListNode, MapNode, Node, ProblemReport, Scalar, Unreadable
from .comments import Comments
from .emit import lines_of, to_yaml


def migrate(text: str, *, file: str = "", format: str | None = None) -> str:
    """Rewrite a policy text in the standard spelling; YAML that is in it already comes back as it is.

    Args:
        text: a policy in any format and spelling that can be read.
        file: the name problems are reported under; its suffix tells the format if `format` does not.
        format: `yaml`, `json` or `toml`.

    Raises:
        PolicyError: the text is wrong; every problem is listed.
    """
    format = format or SUFFIXES.get(Path(file).suffix.lower())
    parse_policies(text, file=file, format=format)
    roots, report = read_source(text, ProblemReport(file), file, format)
    nodes = policy_nodes(roots, report)
    is_yaml = format in (None, "yaml") and not _is_json(text)
    if is_yaml and _standard(roots, nodes):
        return text
    policies = [_headed(node) for node in nodes]
    written = policies[0] if len(policies) == 1 else MapNode({"policies": ListNode([*policies])})
    return to_yaml(written, Comments(text if is_yaml else "", lines_of(written)))


def _standard(roots: Sequence[MapNode], nodes: Sequence[MapNode]) -> bool:
    """Whether nothing of the documents was rewritten."""
    written: list[Node] = []
    for root in roots:
        listed = root.entries.get("policies")
        written += listed.items if isinstance(listed, ListNode) else [root]
    return len(nodes) == len(written) and all(a is b for a, b in zip(nodes, written, strict=True))


def _headed(node: MapNode) -> MapNode:
    """A policy that begins with its version and name."""
    head = {"version": node.entries.get("version", Scalar(1)), "name": node.entries["name"]}
    spans = {**dict.fromkeys(head, NOWHERE), **node.key_spans}
    return MapNode({**head, **node.entries}, spans, node.span, node.path)


def _is_json(text: str) -> bool:
    try:
        read_json(text, ProblemReport())
    except Unreadable:
        return False
    return True
