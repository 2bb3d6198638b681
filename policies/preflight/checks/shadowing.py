"""Rules that another one makes idle: it refuses the same calls, at least as strictly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from ...policy import Allow, Deny
from ...rules.count import Count, MaxCalls
from ...rules.lists import Allowlist, Blocklist
from ...rules.nets.written import Net
from ...stack.clauses import Clause, restricted_by, selectors_of
from ...stack.wording import says
from ...stream.calls import STRICTNESS
from ..alphabet.call_classes import Kind, Kinds, Reach
from ..findings import PreflightFinding

WORDS = ("id", "reason", "description", "tell_model", "action")
"""Fields that do not change what a rule is about."""
OWING = ("after", "eventually", "require", "sequence", "circuit_breaker", "check")
"""Families that do more than refuse some calls of the tools they restrict."""


def shadow_findings(clauses: Sequence[Clause], kinds: Kinds) -> Iterator[PreflightFinding]:
    """The rules that never decide anything, each with the first one that does so for it."""
    if not kinds.names.complete:
        return
    shadows = _Shadows(clauses, kinds)
    for n, clause in enumerate(clauses):
        for m, other in enumerate(clauses):
            if n != m and shadows.covers(m, n) and not (n < m and shadows.covers(n, m)):
                yield PreflightFinding(
                    code="shadowed",
                    severity="report",
                    message=f"it never decides anything: {says(other)} refuses the same calls",
                    policy=clause.policy,
                    rule=clause.id,
                    witness=(says(clause), says(other)),
                    suggestion="take it away",
                )
                break


class _Shadows:
    """What each clause refuses, by its number."""

    def __init__(self, clauses: Sequence[Clause], kinds: Kinds) -> None:
        self._clauses = clauses
        self._kinds = kinds
        self._shut = [_shut(clause, kinds) for clause in clauses]
        self._open = [_restricted(clause, kinds) for clause in clauses]
        self._subject = [_subject(clause, kinds) for clause in clauses]

    def covers(self, m: int, n: int) -> bool:
        """Whether clause `m` refuses all that clause `n` does, as strictly."""
        other, clause = self._clauses[m], self._clauses[n]
        if STRICTNESS[other.action] < STRICTNESS[clause.action] or other.member > clause.member:
            return False  # what a later policy adds makes no earlier rule idle
        if self._subject[m] is not None and self._subject[m] == self._subject[n]:
            return True
        if not other.always:
            return False
        restricted = self._open[n]
        return (restricted is not None and restricted <= self._shut[m]) or _tighter(other, clause, self._kinds)


def _shut(clause: Clause, kinds: Kinds) -> frozenset[Kind]:
    """The kinds of calls that a list refuses, whatever came before."""
    match clause.record:
        case Deny() | Blocklist():
            return kinds.of(clause.record.tools, clause)
        case Allow() | Allowlist():
            reaches = kinds.reaches(clause.record.tools, clause, own_name=True)
            admitted = {name for reach in reaches if not reach.facets for name in reach.names}
            return frozenset(kind for kind in kinds.all if kind.name not in admitted)
    return frozenset()


def _restricted(clause: Clause, kinds: Kinds) -> frozenset[Kind] | None:
    """The kinds of calls that a clause may refuse; None if it does more than that, or there are none."""
    record = clause.record
    if isinstance(record, Net) or getattr(record, "type", "") in OWING:
        return None
    if isinstance(record, Count) and (record.min is not None or record.exact is not None):
        return None
    if isinstance(record, Allow | Allowlist):
        return _shut(clause, kinds) or None
    reached = [kinds.of(selector, clause) for selector in restricted_by(record)]
    return frozenset().union(*reached) if reached and all(reached) else None


def _subject(clause: Clause, kinds: Kinds) -> tuple[object, ...] | None:
    """What a rule is about, whatever it is called: equal for rules that judge alike."""
    if isinstance(clause.record, Net) or getattr(clause.record, "type", "") == "check":
        return None
    record = msgspec.structs.asdict(clause.record)
    fields = tuple((name, value) for name, value in record.items() if name not in WORDS)
    reaches: tuple[tuple[Reach, ...], ...] = tuple(kinds.reaches(s, clause) for s in selectors_of(clause.record))
    return (type(clause.record), fields, reaches)


def _tighter(other: Clause, clause: Clause, kinds: Kinds) -> bool:
    """Whether both count the same calls, and the other one to no more."""
    mine, others = _most(clause), _most(other)
    if isinstance(clause.record, Count) and clause.record.min is not None:
        return False
    if mine is None or others is None or mine[0] < others[0] or mine[1:] != others[1:]:
        return False
    assert isinstance(clause.record, Count | MaxCalls)
    assert isinstance(other.record, Count | MaxCalls)
    return kinds.of(clause.record.tool, clause) == kinds.of(other.record.tool, other)


def _most(clause: Clause) -> tuple[int, str, int | None, str | None] | None:
    match clause.record:
        case MaxCalls(max=most, key=key):
            return (most, "started", None, key)
        case Count(max=int(most), exact=None, of=of, within_turns=within, key=key):
            return (most, of, within, key)
    return None
