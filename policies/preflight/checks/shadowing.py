"""Rules that another one makes idle: it refuses the same calls, at least as strictly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from ...rules.nets.written import Net
from ...rules.record import Cap
from ...stack.clauses import Clause
from ...stream.calls import STRICTNESS
from ..alphabet.call_classes import CallClass, Kinds, NameReach
from ..findings import PreflightFinding, finding
from ..search.system import System

WORDS = ("id", "reason", "description", "tell_model", "action")
"""Fields that do not change what a rule is about."""


def shadow_findings(clauses: Sequence[Clause], kinds: Kinds, systems: Sequence[System]) -> Iterator[PreflightFinding]:
    """The rules that never decide anything, each with the first one that does so for it."""
    if not kinds.names.complete:
        return
    shadows = _Shadows(clauses, kinds, systems)
    for n, clause in enumerate(clauses):
        kinds.work.spend(len(clauses))
        for m, other in enumerate(clauses):
            if n != m and shadows.covers(m, n) and not (n < m and shadows.covers(n, m)):
                yield finding(
                    "shadowed",
                    clause,
                    f"it never decides anything: {other.says()} refuses the same calls",
                    witness=(clause.says(), other.says()),
                    suggestion="take it away",
                )
                break


class _Shadows:
    """What each clause refuses, by its number."""

    def __init__(self, clauses: Sequence[Clause], kinds: Kinds, systems: Sequence[System]) -> None:
        self._clauses = clauses
        self._kinds = kinds
        self._systems: dict[str, list[System]] = {clause.id: [] for clause in clauses}
        for system in systems:
            self._systems[system.clause.id].append(system)
        self._shut = [self._barred(clause) for clause in clauses]
        self._open = [self._restricted(clause) for clause in clauses]
        self._caps = [self._cap(clause) for clause in clauses]
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
        return restricted is not None and (restricted <= self._shut[m] or self._tighter(m, n))

    def _barred(self, clause: Clause) -> frozenset[CallClass]:
        """The kinds of calls that a clause refuses, whatever came before."""
        return frozenset(kind for system in self._systems[clause.id] for kind in system.barred(self._kinds))

    def _restricted(self, clause: Clause) -> frozenset[CallClass] | None:
        """The kinds of calls that a clause may refuse; None if it does more than that, or there are none."""
        if isinstance(clause.record, Net) or clause.record.owes() is not None:
            return None
        if any(
            not system.graph.may_end(state) for system in self._systems[clause.id] for state in system.graph.states
        ):
            return None
        if admits := clause.roles.admits:
            reaches = [
                reach for tools in admits for reach in self._kinds.reaches(tools, clause.scope, virtual_names=())
            ]
            return frozenset(self._kinds.all) - self._kinds.meeting(tuple(reaches)) or None
        reached = [self._kinds.of(selector, clause) for selector in clause.roles.restricts]
        return frozenset().union(*reached) if reached and all(reached) else None

    def _tighter(self, m: int, n: int) -> bool:
        """Whether clause `n` is a cap, and clause `m` caps the same calls at no more."""
        mine, others = self._caps[n], self._caps[m]
        if mine is None or others is None or mine[0].each or mine[1:] != others[1:]:
            return False
        return others[0].most <= mine[0].most and others[0][2:] == mine[0][2:]

    def _cap(self, clause: Clause) -> tuple[Cap, Sequence[frozenset[CallClass]], str | None] | None:
        """The cap that a clause is, with the kinds of calls it counts, and its key."""
        caps = list(clause.record.caps())
        if len(caps) != 1:
            return None
        return caps[0], [self._kinds.of(tool, clause) for tool in caps[0].tools], getattr(clause.record, "key", None)


def _subject(clause: Clause, kinds: Kinds) -> tuple[object, ...] | None:
    """What a rule is about, whatever it is called: equal for rules that judge alike."""
    if isinstance(clause.record, Net):
        return None
    record = msgspec.structs.asdict(clause.record)
    fields = tuple((name, value) for name, value in record.items() if name not in WORDS)
    reaches: tuple[tuple[NameReach, ...], ...] = tuple(kinds.reaches(s, clause.scope) for s in clause.roles.all())
    return (type(clause.record), fields, reaches)
