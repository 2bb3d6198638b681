"""Policy text, bytes, mappings and files to policies."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..errors import PolicyError, Problem, wrong_type
from ..policy import Policy, members_of
from ..rules import RULES
from .checked import is_sound, mark_sound
from .convert import Converter
from .cross_checks import check_whole
from .dialects.spellings import policies_of_tests, rewritten
from .formats.source import SUFFIXES, read_source
from .records_tree import record_node
from .suggestions import did_you_mean
from .tree import ListNode, MapNode, Node, Report, Unreadable, describe, join, set_paths


def load_policies(path: str | os.PathLike[str]) -> list[Policy]:
    """Read the policies of a file; its suffix tells the format: `.yaml`, `.yml`, `.json`, `.toml`, else YAML.

    Raises:
        PolicyError: the file cannot be read, or is wrong; every problem is listed.
    """
    try:
        file = os.fspath(path)
        data = Path(file).read_bytes()
    except (OSError, TypeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        problem = Problem(message=f"cannot read the file: {reason.lower()}", file=str(path))
        raise PolicyError([problem]) from None
    return parse_policies(data, file=file, format=SUFFIXES.get(Path(file).suffix.lower()))


def parse_policies(
    source: str | bytes | dict[str, Any], *, file: str = "", format: str | None = None
) -> list[Policy]:
    """Read policies from text or from a mapping.

    Args:
        source: one policy, or a list of them under `policies:`.
        file: the name that problems are reported under.
        format: `yaml`, `json` or `toml`; None reads JSON where it is JSON, else YAML.

    Raises:
        PolicyError: the text is wrong; every problem is listed.
    """
    report = Report(file)
    root, report = read_source(source, report, file, format)
    policies = [_policy(node, report) for node in policy_nodes(root, report)]
    report.raise_if_any()
    for policy in policies:
        mark_sound(policy)
    return policies


def check_policy(policy: Policy) -> None:
    """Check a policy made in Python as strictly as one that is read; a stack by its members, each once.

    Raises:
        PolicyError: it is not a policy, or something in it is wrong.
    """
    if not isinstance(policy, Policy):
        raise PolicyError(wrong_type("a policy", policy))
    report = Report()
    unknown = [member for member in members_of(policy) if not is_sound(member)]
    for member in unknown:
        try:
            node = record_node(member)
        except Unreadable as error:
            raise PolicyError(error.message) from None
        set_paths(node)
        _policy(node, report, only_records=True)
    report.raise_if_any()
    for member in unknown:
        mark_sound(member)


def policy_nodes(root: MapNode, report: Report) -> list[MapNode]:
    """The policies of a document, each in the standard spelling."""
    if "tests" in root.entries:
        return [rewritten(test, report) for test in policies_of_tests(root, report)]
    if "policies" not in root.entries:
        return [rewritten(root, report)]
    for key in root.entries:
        if key != "policies":
            hint = did_you_mean(key, ("policies",)) or "write it in each policy of the list"
            message = f"unknown key `{key}` beside `policies`"
            report.add(message, root.key_span(key), join(root.path, key), hint)
    listed = root.entries["policies"]
    found: list[MapNode] = []
    if not isinstance(listed, ListNode) or not listed.items:
        report.add(f"expected a list of policies, got {_empty(listed)}", listed.span, listed.path)
        return []
    for item in listed.items:
        if isinstance(item, MapNode):
            found.append(rewritten(item, report))
        else:
            report.add(f"a policy is a mapping, not {describe(item)}", item.span, item.path)
    return found


def _empty(node: Node) -> str:
    return "an empty one" if isinstance(node, ListNode) else describe(node)


def _policy(node: MapNode, report: Report, *, only_records: bool = False) -> Policy:
    policy: Policy = Converter(report, RULES, only_records=only_records).record(Policy, node)
    check_whole(node, report)
    return policy
