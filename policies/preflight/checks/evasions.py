"""Rules that hold less than they seem to: an adjacency that a call in between evades, virtual names as evidence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...rules.sequence import ForbiddenSequence
from ...rules.wording import names
from ...stack.clauses import Clause
from ...values.globs import matcher
from ..findings import PreflightFinding, finding


def evasion_findings(clauses: Iterable[Clause]) -> Iterator[PreflightFinding]:
    """Rules that can be got round."""
    for clause in clauses:
        yield from _adjacency(clause)
        yield from _virtual_evidence(clause)


def _adjacency(clause: Clause) -> Iterator[PreflightFinding]:
    match clause.record:
        case ForbiddenSequence(adjacency="strict", sequence=members) if len(members) > 1:
            chain = [names(member) for member in members]
            yield finding(
                "evaded_by_one_call",
                clause,
                f"{' -> '.join(chain)} is only refused with nothing between: one other call evades it",
                witness=(*chain[:-1], "any other call", chain[-1]),
                suggestion="say `adjacency: any`",
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
