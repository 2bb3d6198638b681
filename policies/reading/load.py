"""Reads policies from text, bytes and mappings."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import msgspec

from ..errors import PolicyError, Problem, not_a_policy, os_words, read_each
from ..language.selectors import NameScope, person_problems, selector_problems
from ..policy import Policy, members_of
from ..rules import RULES
from ..rules.net_shorthand import line_problems
from ..values.model_base import Issue
from ..values.regexes import read_together
from .convert import Converter, place_of
from .dialects import is_contract, is_policy, policies_of_tests, policy_of_contracts, rewritten
from .schema import did_you_mean
from .sources import SUFFIXES, read_source
from .tree import (
    MAX_TEXT,
    ListNode,
    MapNode,
    Node,
    ProblemReport,
    Scalar,
    Unreadable,
    check_size,
    describe,
    join,
    record_node,
    set_paths,
)

_NAMED = (
    ("id", ("tool_rules", "rules"), ("id",)),
    ("name", ("nets",), ("name", "line")),
    ("name", ("budgets",), ("name",)),
)
"""The keys under which the parts of a policy have their names."""

_CHOICES = frozenset({"on_violation", "enforcement", "unpriced", "locked"})
_PARTS = frozenset(Policy.__struct_fields__) - {"name", "version", "description", "metadata"} - _CHOICES
"""The fields of a policy that decide something: one word of several, or more than a word."""


def check_whole(node: MapNode, report: ProblemReport) -> None:
    """Report problems that concern several parts of a policy."""
    for where, message in _complaints(node):
        span, path = place_of(node, where)
        report.add(message, span, path)
    _check_ids(node, report)


def _complaints(node: MapNode) -> Iterator[Issue]:
    aliases = node.entries.get("aliases")
    if isinstance(aliases, MapNode):
        yield from _alias_problems(aliases)
    metadata = node.entries.get("metadata")
    for key, value in metadata.entries.items() if isinstance(metadata, MapNode) else ():
        if key in _CHOICES or (key in _PARTS and not isinstance(value, Scalar)):
            yield ("metadata", key), f"`{key}` does nothing under `metadata`; it is a key of the policy"
    nets = node.entries.get("nets")
    if isinstance(nets, ListNode):
        scope = NameScope(_names(aliases)) if isinstance(aliases, MapNode) else NameScope()
        yield from _net_problems(nets, NameScope() if scope.circle() else scope)


def _alias_problems(aliases: MapNode) -> Iterator[Issue]:
    for alias, tools in aliases.entries.items():
        yield from person_problems(alias, ("aliases", alias))
        if isinstance(tools, ListNode):
            names = [name for name in map(_text, tools.items) if name]
            if len(names) == len(tools.items):
                yield from selector_problems(names, ("aliases", alias))
    if circle := NameScope(_names(aliases)).circle():
        yield ("aliases",), f"aliases refer to each other in a circle: {' -> '.join(circle)}"


def _net_problems(nets: ListNode, scope: NameScope) -> Iterator[Issue]:
    for n, net in enumerate(nets.items):
        if (line := _text(net)) is not None:
            yield from line_problems(line, ("nets", n), scope)
        elif isinstance(net, MapNode) and (line := _text(net.entries.get("line"))) and not [*line_problems(line)]:
            yield from line_problems(line, ("nets", n, "line"), scope)


def _names(aliases: MapNode) -> dict[str, list[str]]:
    """The aliases that are lists of names."""
    listed = {alias: tools.items for alias, tools in aliases.entries.items() if isinstance(tools, ListNode)}
    return {alias: [name for item in items if (name := _text(item))] for alias, items in listed.items()}


def _text(node: Node | None) -> str | None:
    value = getattr(node, "value", None)
    return value if isinstance(value, str) else None


def _check_ids(node: MapNode, report: ProblemReport) -> None:
    """Report an id that two rules of a policy share, or a name that two nets or budgets share, with both places."""
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


_SOUND: WeakValueDictionary[int, Policy] = WeakValueDictionary()
"""Living records that passed their checks, so that none is checked twice."""


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
    """The policies of one text; `contracts`: it consists of contracts only."""

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
    """The policies of a text's documents, or of parts of one; reports problems."""
    with read_together():
        return [_policy(node, report) for node in policy_nodes(roots, report)]


def check_policy(policy: Policy) -> None:
    """Check a policy made in Python as strictly as one read from text; of a stack, each policy once. Raises
    PolicyError: it is not a policy, or not a valid one.
    """
    if not isinstance(policy, Policy):
        raise PolicyError(not_a_policy(policy))
    report = ProblemReport()
    unknown = [member for member in members_of(policy) if _SOUND.get(id(member)) is not member]
    for member in unknown:
        try:
            node = record_node(member)
            check_size(node)
        except Unreadable as error:
            raise PolicyError(error.message) from None
        set_paths(node)
        _policy(node, report, only_records=True)
    report.raise_if_any()
    for member in unknown:
        _SOUND[id(member)] = member


def part_of(policy: Policy, **fields: Sequence[Any]) -> Policy:
    """A policy that was checked with no lists, rules and nets but these, which are its own: not checked again."""
    part = msgspec.structs.replace(policy, **fields)
    if _SOUND.get(id(policy)) is policy:
        _SOUND[id(part)] = part
    return part


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
    if _are_tests([root]):
        report.add("a file of tests, not a policy", root.span, root.path, "`proctor test` runs it")
        return []
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
        got = "an empty one" if isinstance(listed, ListNode) else describe(listed)
        report.add(f"expected a list of policies, got {got}", listed.span, listed.path)
        return []
    for item in listed.items:
        if isinstance(item, MapNode):
            found.append(rewritten(item, report))
        else:
            report.add(f"a policy is a mapping, not {describe(item)}", item.span, item.path)
    return found


def _policy(node: MapNode, report: ProblemReport, *, only_records: bool = False) -> Policy:
    policy: Policy = Converter(report, RULES, only_records=only_records).record(Policy, node)
    check_whole(node, report)
    return policy


def load_policies(path: str | os.PathLike[str]) -> list[Policy]:
    """Read the policies of a file, or of every policy file of a directory, in name order.

    A file's suffix gives its format: `.yaml`, `.yml`, `.json`, `.toml`, else YAML. The contracts of a directory are
    one policy, named after the directory; files with policy tests are skipped.

    Raises:
        PolicyError: a file cannot be read, or is invalid; every problem of every file is listed.
    """
    try:
        folder = Path(os.fspath(path))
        if not folder.is_dir():
            return _read(folder).policies
        return _together(folder, read_each(_read_of_folder, policy_files(folder)))
    except (OSError, TypeError, ValueError) as error:
        if isinstance(error, PolicyError):
            raise
        raise PolicyError([_unreadable(path, error)]) from None


def policy_files(folder: Path) -> list[Path]:
    """The policy files of a directory, in name order. Raises PolicyError: there is none."""
    files = sorted(each for each in folder.iterdir() if _is_policy_file(each))
    if not files:
        suffixes = ", ".join(f"`{suffix}`" for suffix in SUFFIXES)
        message = "no policy file is in the directory"
        raise PolicyError([Problem(message=message, file=str(folder), suggestion=f"their names end in {suffixes}")])
    return files


def _is_policy_file(path: Path) -> bool:
    """Whether a path of a directory is meant as one; a link that leads nowhere is, so that reading it fails."""
    named = path.suffix.lower() in SUFFIXES and not path.name.startswith(".")
    return named and (path.is_file() or path.is_symlink())


def policies_among(folder: Path) -> tuple[list[Path], dict[Path, str]]:
    """The policy files of a directory that hold policies, and the others, each with what it is instead. Raises
    PolicyError: no file holds a policy.
    """
    files = policy_files(folder)
    others = {path: kind for path in files if (kind := _other_than_policy(path))}
    if len(others) == len(files):
        named = "; ".join(f"`{path.name}`: {kind}" for path, kind in others.items())
        raise PolicyError([Problem(message=f"no policy is in the directory ({named})", file=str(folder))])
    return [path for path in files if path not in others], others


def _other_than_policy(path: Path) -> str:
    """What a file holds that has no policy; "" if it has one, or cannot be read."""
    roots = _roots(path)
    if _are_tests(roots):
        return "tests of policies"
    if not roots or any(is_policy(root, Policy.__struct_fields__) for root in roots):
        return ""
    return "no policy"


def _read(path: Path) -> Document:
    try:
        with path.open("rb") as file:
            data = file.read(4 * MAX_TEXT + 1)  # what is longer is rejected by its length
    except (OSError, ValueError) as error:
        raise PolicyError([_unreadable(path, error)]) from None
    return read_document(data, file=str(path), format=SUFFIXES.get(path.suffix.lower()))


def _read_of_folder(path: Path) -> Document:
    try:
        return _read(path)
    except PolicyError:
        if _are_tests(_roots(path)):
            return Document([], contracts=False)
        raise


def _are_tests(roots: Sequence[MapNode]) -> bool:
    """Whether the documents of a file are tests, and the policies that they are about."""
    return bool(roots) and all(
        "policies" in root.entries and {"tests", "prove"} & root.entries.keys() for root in roots
    )


def _roots(path: Path) -> Sequence[MapNode]:
    """The documents of a file; none if it cannot be read."""
    try:
        name = str(path)
        return read_source(path.read_bytes(), ProblemReport(name), name, SUFFIXES.get(path.suffix.lower()))[0]
    except (OSError, PolicyError):
        return ()


def _unreadable(path: object, error: Exception) -> Problem:
    return Problem(message=f"cannot read the file: {os_words(error)}", file=str(path))


def _together(folder: Path, documents: Sequence[Document]) -> list[Policy]:
    """The policies of a directory; its contracts are one policy, in the place of the first. Raises PolicyError: there
    is none.
    """
    rules = tuple(rule for each in documents if each.contracts for policy in each.policies for rule in policy.rules)
    found: list[Policy] = []
    for document in documents:
        if not document.contracts:
            found += document.policies
        elif rules:
            name = folder.resolve().name or "contracts"
            found.append(msgspec.structs.replace(document.policies[0], name=name, rules=rules))
            rules = ()
    if not found:
        message = "no policy is in the directory, only tests of policies"
        raise PolicyError([Problem(message=message, file=str(folder))])
    return found
