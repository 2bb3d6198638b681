"""What each kind of call needs to have come before it, by every clause that no run can get round."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ...policy import Allow, Deny
from ...rules.before import Before, ImmediatelyBefore
from ...rules.count import Count, MaxCalls
from ...rules.lists import Allowlist, Blocklist
from ...rules.loop import Loop, MaxParallel
from ...rules.nets.written import Net
from ...rules.precondition import Precondition, Requirement
from ...rules.sequence import ForbiddenSequence, Sequence
from ...stack.clauses import Clause, priors_of
from ..alphabet.call_classes import Kind, Kinds
from .derivation import Need, Node
from .net_needs import net_needs


class Stated(NamedTuple):
    """The needs of every node; `barred` are the kinds that a clause keeps out by naming them."""

    needs: dict[Node, list[Need]]
    barred: dict[Kind, Clause]


def stated_needs(clauses: Iterable[Clause], kinds: Kinds) -> Stated:
    """What the clauses that bind every run ask of each kind of call."""
    needs: dict[Node, list[Need]] = {kind: [] for kind in kinds.all}
    barred: dict[Kind, Clause] = {}
    for clause in clauses:
        if not clause.binds:
            continue
        for kind in _barred(clause, kinds):
            barred.setdefault(kind, clause)
            needs[kind].append(Need(frozenset(), clause))
        if isinstance(clause.record, Net):
            for node, need in net_needs(clause, kinds):
                needs.setdefault(node, [])
                if need is not None:
                    needs[node].append(need)
                    if clause.line and not need.alternatives and isinstance(node, Kind):
                        barred.setdefault(node, clause)
            continue
        for restricted, alternatives in _asked(clause, kinds):
            for kind in restricted:
                needs[kind].append(Need(alternatives, clause))
    return Stated(needs, barred)


def _barred(clause: Clause, kinds: Kinds) -> Iterable[Kind]:
    """The kinds that a clause keeps out altogether, as its author means it to."""
    match clause.record:
        case Allow() | Allowlist() as allowed:
            names = {name for reach in kinds.reaches(allowed.tools, clause, own_name=True) for name in reach.names}
            return () if not kinds.names.complete else (kind for kind in kinds.all if kind.name not in names)
        case Deny() | Blocklist() as denied:
            return kinds.of(denied.tools, clause)
        case Count() as count if (count.exact if count.exact is not None else count.max) == 0:
            return kinds.of(count.tool, clause)
        case (MaxCalls() | MaxParallel()) as capped if capped.max == 0:
            return kinds.of(capped.tool, clause)
        case ForbiddenSequence() as forbidden if len(forbidden.sequence) == 1:
            return kinds.of(forbidden.sequence[0], clause)
        case Loop() as loop if loop.threshold == 1:
            return kinds.of(loop.tool, clause)
    return ()


def _asked(clause: Clause, kinds: Kinds) -> Iterator[tuple[frozenset[Kind], frozenset[Node]]]:
    """For some kinds, of which other kinds one must have come before."""
    match clause.record:
        case Before() | ImmediatelyBefore() as before:
            yield kinds.of(before.then, clause), _nodes(kinds, clause, [before.first])
        case Precondition() as precondition:
            restricted = kinds.of(precondition.tool, clause)
            for requirement in precondition.requires:
                if not _free(requirement):
                    yield restricted, _nodes(kinds, clause, priors_of([requirement]))
        case Sequence() as sequence:
            earlier: set[Kind] = set()
            for first, then in zip(sequence.tools, sequence.tools[1:], strict=False):
                earlier |= _perhaps(kinds, clause, first)
                yield kinds.of(then, clause) - earlier, _nodes(kinds, clause, [first])


def _free(requirement: Requirement) -> bool:
    """Whether it can be met without an earlier call."""
    if isinstance(requirement.any_of, tuple):
        return any(map(_free, requirement.any_of))
    return isinstance(requirement.turns_gte, int) or isinstance(requirement.user_said, str)


def _nodes(kinds: Kinds, clause: Clause, selectors: Iterable[Any]) -> frozenset[Node]:
    return frozenset(kind for selector in selectors for kind in kinds.of(selector, clause))


def _perhaps(kinds: Kinds, clause: Clause, selector: Any) -> set[Kind]:
    """The kinds of which some call is meant."""
    names = {name for reach in kinds.reaches(selector, clause) for name in reach.names}
    return {kind for kind in kinds.all if kind.name in names}
