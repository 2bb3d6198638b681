"""Rules that hold less than they seem to: an adjacency that a call in between evades, virtual names, links."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import UNSET

from ...language.conditions import all_in
from ...language.selectors import ToolWhere
from ...rules.record import Rule
from ...rules.wording import items_of
from ...stack.clauses import Clause
from ...values.globs import matcher
from ..alphabet.call_classes import Kinds
from ..findings import PreflightFinding, finding
from ..search.system import System, systems_of


def evasion_findings(
    clauses: Iterable[Clause], kinds: Kinds, systems: Iterable[System]
) -> Iterator[PreflightFinding]:
    """Rules that can be got round; those with a key by calls of one value."""
    by_clause: dict[str, list[System]] = {}
    for system in systems:
        by_clause.setdefault(system.clause.id, []).append(system)
    for clause in clauses:
        if isinstance(clause.record, Rule):
            of_clause: Iterable[System] = by_clause.get(clause.id, ())
            if clause.record.key is not None:
                keyless = clause._replace(record=msgspec.structs.replace(clause.record, key=None))
                of_clause = systems_of([keyless], kinds)
            yield from _adjacency(clause, clause.record, of_clause)
        yield from _virtual_evidence(clause)
        yield from _links(clause)


def _adjacency(clause: Clause, rule: Rule, systems: Iterable[System]) -> Iterator[PreflightFinding]:
    """Rules that refuse a call only right after another one."""
    for system in systems:
        if way := system.graph.evasion:
            chain = [system.calls_of(mask) for mask in way]
            yield finding(
                "evaded_by_one_call",
                clause,
                f"{' -> '.join(chain)} is only refused with nothing between: one other call evades it",
                witness=(*chain[:-1], "any other call", chain[-1]),
                suggestion="say `adjacency: any`" if hasattr(rule, "adjacency") else "",
            )


def _virtual_evidence(clause: Clause) -> Iterator[PreflightFinding]:
    """A virtual name says that a text was found, not that it was done: `echo git test` matches `git test`."""
    matches = matcher(clause.patterns(*clause.roles.evidence))
    found = dict.fromkeys(virtual.name for virtual in clause.scope.virtual_names if matches(virtual.name))
    if found:
        yield finding(
            "virtual_evidence",
            clause,
            f"{', '.join(f'`{name}`' for name in found)} is found by search in a call's input: as evidence "
            "it is only as good as its pattern (`echo git test` matches `git test`)",
            witness=tuple(found),
            suggestion="anchor the pattern, or take a tool of its own as evidence",
        )


def _links(clause: Clause) -> Iterator[PreflightFinding]:
    """`within` looks nothing up: a path inside a directory may be a link that leads out of it."""
    wheres = (item.where for each in clause.roles.all() for item in items_of(each) if isinstance(item, ToolWhere))
    named = dict.fromkeys(c.within for where in wheres for c in all_in(where) if c.within is not UNSET)
    if named:
        yield finding(
            "links_not_followed",
            clause,
            f"{', '.join(f'`within: {name}`' for name in named)} compares paths as text: a link can lead out of it",
            witness=tuple(named),
            suggestion="deny `runs: [ln]`, so that no link is made, and look at the links that the workspace brings",
        )
