"""Allow lists that admit nothing, and entries of them that are denied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from ...language.selectors import ToolWhere
from ...rules.wording import items_of
from ...stack.clauses import Clause
from ...stream.calls import rule_name
from ..alphabet.call_classes import Kinds
from ..findings import PreflightFinding, finding
from ..search.system import System

Denials: TypeAlias = Sequence[tuple[Clause, frozenset[str]]]
"""Clauses, each with the names that it denies whatever the input."""


def allow_findings(
    clauses: tuple[Clause, ...], kinds: Kinds, systems: Sequence[System]
) -> Iterator[PreflightFinding]:
    """What is wrong with the allow lists of a stack."""
    lists = [clause for clause in clauses if clause.roles.admits]
    empty = [clause for clause in lists if not _tools(clause)]
    for clause in empty:
        yield finding(
            "empty_allow_list",
            clause,
            "the allow list is empty: no tool could be called",
            suggestion="list the tools that may be called",
        )
    if empty or not kinds.names.complete:
        return
    denials = _denials(kinds, systems)
    found = [finding for clause in lists for finding in _denied_entries(clause, denials, kinds)]
    binding = [clause for clause in lists if clause.binds]
    apart = list(_no_common_name(binding, kinds))
    yield from apart
    yield from found
    if binding and not apart and not found:
        yield from _nothing_left(binding, denials, kinds)


def _tools(clause: Clause) -> Sequence[str | ToolWhere]:
    return [item for selector in clause.roles.admits for item in items_of(selector)]


def _names(clause: Clause, kinds: Kinds, entry: str | ToolWhere | None = None) -> frozenset[str]:
    """The names that an allow list, or one entry of it, admits."""
    wanted = clause.roles.admits if entry is None else (entry,)
    reaches = [reach for selector in wanted for reach in kinds.reaches(selector, clause.scope, virtual_names=())]
    return frozenset(name for reach in reaches for name in reach.names)


def _no_common_name(lists: list[Clause], kinds: Kinds) -> Iterator[PreflightFinding]:
    """All lists must admit a call; together they admit none."""
    common = frozenset(kinds.names.all)
    for n, clause in enumerate(lists):
        common &= _names(clause, kinds)
        if not common and kinds.names.complete:
            shown = tuple(f"{rule_name(c.policy, c.id)}: {_listed(_tools(c))}" for c in lists[: n + 1])
            yield finding(
                "disjoint_allow_lists",
                clause,
                f"no tool is in all allow lists: {' | '.join(shown)}",
                witness=shown,
                suggestion="a call must be in every allow list of the stack; leave one list, or let them overlap",
            )
            return


def _listed(entries: Iterable[str | ToolWhere]) -> str:
    return ", ".join(f"`{entry if isinstance(entry, str) else entry.tool}`" for entry in entries)


def _denials(kinds: Kinds, systems: Sequence[System]) -> Denials:
    """The names that clauses deny; allow lists aside."""
    found: list[tuple[Clause, frozenset[str]]] = []
    for system in systems:
        if system.clause.binds and not system.is_allow_list:
            barred = frozenset(kind.name for kind in system.barred(kinds) if not kind.facets)
            if barred:
                found.append((system.clause, barred))
    return found


def _denied_entries(clause: Clause, denials: Denials, kinds: Kinds) -> Iterator[PreflightFinding]:
    """Entries of which the same or an earlier policy denies every name."""
    earlier = [(other, denied) for other, denied in denials if other.member <= clause.member]
    all_denied = frozenset().union(*(denied for _, denied in earlier))
    for entry in _tools(clause):
        names = _names(clause, kinds, entry)
        kinds.work.spend(1 + len(names))
        if not names or not names <= all_denied:
            continue
        kinds.work.spend(len(earlier))
        by = [other for other, denied in earlier if denied & names]
        yield finding(
            "denied_allow_entry",
            clause,
            f"{_listed([entry])} is allowed and denied by {_listed(rule_name(o.policy, o.id) for o in by)}",
            witness=tuple(f"{rule_name(o.policy, o.id)}: {_denied(o)}" for o in by),
            suggestion="take it out of one of the two",
        )


def _nothing_left(lists: Sequence[Clause], denials: Denials, kinds: Kinds) -> Iterator[PreflightFinding]:
    """Lists of which later policies deny all that is in every one."""
    left = frozenset(kinds.names.all).intersection(*(_names(clause, kinds) for clause in lists))
    by = [other for other, denied in denials if denied & left]
    if left <= frozenset().union(*(denied for _, denied in denials)):
        yield finding(
            "nothing_left",
            lists[0],
            f"no tool is left: all are denied by {_listed(rule_name(o.policy, o.id) for o in by)}",
            witness=tuple(f"{rule_name(o.policy, o.id)}: {_denied(o)}" for o in by),
            suggestion="leave one tool, or set `max_tool_calls: 0`",
        )


def _denied(clause: Clause) -> str:
    return _listed(item for selector in clause.roles.restricts for item in items_of(selector))
