"""Which kinds of calls can ever be let through, each clause looked at by itself; and why the others cannot.

The calls found so far lead every clause's system on; what a clause admits in some state it can be led to, it does not
stand in the way of. So what is called impossible is impossible for certain.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...stack.clauses import Clause
from ..alphabet.call_classes import CallClass, Facet, Kinds
from .graph import ENDINGS
from .system import System


class Step(NamedTuple):
    """Why calls of a kind never come: the clause wants one of `wanted` first; None where no call would satisfy it."""

    kind: CallClass
    clause: Clause
    wanted: CallClass | None


class Saturation:
    """The kinds in `found` can be let through, in the order in which they were found.

    `barred` are the kinds that a clause denies, with the first that does; `cores` those that are excluded, with the
    clauses that together leave no order in which they could come.
    """

    def __init__(self, systems: Iterable[System], kinds: Kinds) -> None:
        self.kinds = kinds
        complete = kinds.names.complete
        self.systems = [s for s in systems if s.graph.moves is not None and (complete or not s.is_allow_list)]
        self.cores: dict[CallClass, list[Clause]] = {}
        self._naming: dict[str, list[System]] = {}
        for system in self.systems:
            for name in system.names:
                self._naming.setdefault(name, []).append(system)
        self.barred = self._barred()
        self._saturate()

    def exclude(self, cores: dict[CallClass, list[Clause]]) -> None:
        """Note that some kinds come in no order; whatever needs them cannot come either."""
        self.cores |= cores
        self._saturate()

    def way_to(self, kind: CallClass) -> list[CallClass]:
        """The calls on one way to a kind, in order, the kind last."""
        way: dict[CallClass, None] = {}
        stack = [(kind, False)]
        while stack:
            at, ready = stack.pop()
            self.kinds.work.spend()
            if ready:
                way[at] = None
            elif at not in way:
                stack.append((at, True))
                stack += [(other, False) for other in reversed(self._needed[at])]
        return list(way)

    def why_never(self, kind: CallClass) -> list[Step]:
        """A shortest chain from a kind to one that no call can satisfy; if every chain is a circle, one of them."""
        chains: list[tuple[CallClass, list[Step]]] = [(kind, [])]
        seen = {kind}
        for at, chain in chains:
            for step in self._wants(at):
                if step.wanted is None:
                    return [*chain, step]
                if step.wanted not in seen:
                    seen.add(step.wanted)
                    chains.append((step.wanted, [*chain, step]))
        round_trip: dict[CallClass, Step] = {}
        while kind not in round_trip:
            step = round_trip[kind] = self._wants(kind)[0]
            assert step.wanted is not None
            kind = step.wanted
        return list(round_trip.values())

    def _barred(self) -> dict[CallClass, Clause]:
        found: dict[CallClass, Clause] = {}
        for system in self.systems:
            for kind in system.barred(self.kinds):
                found.setdefault(kind, system.clause)
        return found

    def _kinds_of(self, system: System) -> Iterable[CallClass]:
        return (kind for name in system.names for kind in self.kinds.named(name))

    def _saturate(self) -> None:
        self.found: dict[CallClass, int] = {}
        self._needed: dict[CallClass, tuple[CallClass, ...]] = {}
        self._reached: dict[System, dict[int, tuple[CallClass, ...]]] = {s: {s.graph.start: ()} for s in self.systems}
        pending = dict.fromkeys(kind for kind in self.kinds.all if kind not in self.cores)
        again = set(self.kinds.names.all)
        while again:
            self.kinds.work.spend(len(pending))
            ready = [kind for kind in pending if kind.name in again and self._let(kind)]
            for kind in ready:
                del pending[kind]
            again = {kind.name for kind in ready}  # such calls may have more facets now
            named = dict.fromkeys(system for name in again for system in self._naming.get(name, ()))
            for system in named:
                if self._lead(system):
                    again |= system.names

    def _let(self, kind: CallClass) -> bool:
        """Note a kind that every clause lets through in some state."""
        needed: dict[CallClass, None] = {}
        for system in self._naming.get(kind.name, ()):
            way = self._way_in(system, kind)
            if way is None:
                return False
            needed |= dict.fromkeys(way)
        self.found[kind] = len(self.found)
        self._needed[kind] = tuple(other for other in needed if other != kind)
        return True

    def _way_in(self, system: System, kind: CallClass) -> tuple[CallClass, ...] | None:
        """The kinds of calls that lead a system to where it admits a kind; None if it never does."""
        inputs = system.letters(kind.name, kind.facets)
        masks = {system.mask(kind.name, some) for some in inputs if self._open(kind, some)}
        for state, way in self._reached[system].items():
            self.kinds.work.spend(1 + len(masks))
            if any(system.admits(state, mask) for mask in masks):
                return way
        return None

    def _open(self, kind: CallClass, facets: frozenset[Facet]) -> bool:
        """Whether a call of a kind may have these facets: every kind that it is of, beyond this one's, was found."""
        others = (
            other for other in self.kinds.within(CallClass(kind.name, facets)) if not other.facets <= kind.facets
        )
        return all(other in self.found for other in others)

    def _lead(self, system: System) -> bool:
        """Lead a system on by the calls found so far; whether that leads anywhere new."""
        if not system.graph.changes:
            return False
        reached = self._reached[system]
        before = len(reached)
        letters = [*([(CallClass("other"), 0)] if system.unnamed else []), *self._letters(system)]
        states = list(reached)
        for state in states:
            self.kinds.work.spend(1 + len(letters))
            for kind, mask in letters:
                if system.admits(state, mask):
                    for ending in ENDINGS:
                        after = system.after(state, mask, ending)
                        if after not in reached:
                            reached[after] = (*reached[state], kind) if mask else reached[state]
                            states.append(after)
        return len(reached) > before

    def _letters(self, system: System) -> list[tuple[CallClass, int]]:
        """The calls found so far that a system tells apart, one of each."""
        found: dict[int, CallClass] = {}
        self.kinds.work.spend(len(self.found))
        for kind in self.found:
            if kind.name in system.names:
                for facets in system.letters(kind.name):
                    letter = CallClass(kind.name, facets)
                    if all(other in self.found for other in self.kinds.within(letter)):
                        found.setdefault(system.mask(*letter), kind)
        return [(kind, mask) for mask, kind in found.items()]

    def _wants(self, kind: CallClass) -> Sequence[Step]:
        """For each clause that never lets a kind through, the calls it would need, none of which can come."""
        steps: list[Step] = []
        for system in self._naming.get(kind.name, ()):
            if self._way_in(system, kind) is None:
                wanted = self._missing(system, kind)
                steps += [Step(kind, system.clause, other) for other in wanted]
                if not wanted:
                    steps.append(Step(kind, system.clause, None))
        if kind in self.cores:
            steps.append(Step(kind, self.cores[kind][0], None))
        return steps

    def _missing(self, system: System, kind: CallClass) -> list[CallClass]:
        """The kinds that cannot come, calls of which would lead a system to where it admits a kind."""
        mask = system.mask(*kind)
        self.kinds.work.spend(len(system.graph.moves or ()))
        ways = {
            move.mask
            for move in system.graph.moves or ()
            if not system.admits(move.before, mask) and system.admits(move.after, mask)
        }
        missing = (k for k in self._kinds_of(system) if k not in self.found and system.mask(*k) in ways)
        return sorted(missing, key=repr)
