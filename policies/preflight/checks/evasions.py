"""Rules that one other call evades: an adjacency holds only as long as nothing comes between."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from ...rules.record import Rule
from ...stack.clauses import Clause
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
