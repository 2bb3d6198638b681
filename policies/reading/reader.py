"""Policy text, bytes and mappings to policies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from ..errors import PolicyError, wrong_type
from ..policy import Policy, members_of
from ..rules import RULES
from .convert import Converter
from .cross_checks import check_whole
from .dialects.contracts import is_contract
from .dialects.spellings import policies_of_tests, policy_of_contracts, rewritten
from .formats.source import read_source
from .records_tree import record_node
from .suggestions import did_you_mean
from .tree import ListNode, MapNode, Node, ProblemReport, Unreadable, describe, join, set_paths

_SOUND: WeakValueDictionary[int, Policy] = WeakValueDictionary()
"""The very records that were checked and are sound, for as long as they live, so that none is checked twice."""


def parse_policies(
    source: str | bytes | dict[str, Any], *, file: str = "", format: str | None = None
) -> list[Policy]:
    """Read policies from text or from a mapping.

    Args:
        source: one policy, or a list of them under `policies:`; YAML may hold several documents.
        file: the name that problems are reported under; its stem names a policy that states no name.
        format: `yaml`, `json` or `toml`; None reads JSON where it is JSON, else YAML.

    Raises:
        PolicyError: the text is wrong; every problem is listed.
    """
    return read_document(source, file=file, format=format).policies


class Document(NamedTuple):
    """The policies of one text; `contracts` says that it is written as contracts and nothing else."""

    policies: list[Policy]
    contracts: bool


def read_document(source: object, *, file: str, format: str | None) -> Document:
    """Read a text or a mapping; see `parse_policies`."""
    roots, report = read_source(source, ProblemReport(file), file, format)
    policies = policies_of(roots, report)
    report.raise_if_any()
    for policy in policies:
        _SOUND[id(policy)] = policy
    return Document(policies, all(map(is_contract, roots)))


def policies_of(roots: Sequence[MapNode], report: ProblemReport) -> list[Policy]:
    """The policies that a text's documents, or parts of one, spell; what is wrong goes to the report."""
    return [_policy(node, report) for node in policy_nodes(roots, report)]


def check_policy(policy: Policy) -> None:
    """Check a policy made in Python as strictly as one that is read; a stack by its members, each once.

    Raises:
        PolicyError: it is not a policy, or something in it is wrong.
    """
    if not isinstance(policy, Policy):
        raise PolicyError(wrong_type("a policy", policy))
    report = ProblemReport()
    unknown = [member for member in members_of(policy) if _SOUND.get(id(member)) is not member]
    for member in unknown:
        try:
            node = record_node(member)
        except Unreadable as error:
            raise PolicyError(error.message) from None
        set_paths(node)
        _policy(node, report, only_records=True)
    report.raise_if_any()
    for member in unknown:
        _SOUND[id(member)] = member


def policy_nodes(roots: Sequence[MapNode], report: ProblemReport) -> list[MapNode]:
    """The policies of a text's documents, each in the standard spelling; its contracts are one policy."""
    contracts = [root for root in roots if is_contract(root)]
    found: list[MapNode] = []
    for root in roots:
        if not is_contract(root):
            found += _nodes_of(root, report)
        elif root is contracts[0]:
            found.append(policy_of_contracts(contracts, report))
    return found


def _nodes_of(root: MapNode, report: ProblemReport) -> list[MapNode]:
    """The policies of one document."""
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


def _policy(node: MapNode, report: ProblemReport, *, only_records: bool = False) -> Policy:
    policy: Policy = Converter(report, RULES, only_records=only_records).record(Policy, node)
    check_whole(node, report)
    return policy
