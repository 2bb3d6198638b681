"""One clause as a transition system over calls: its own machine, and which calls its slots mean."""

from __future__ import annotations

import itertools
from collections.abc import Container, Hashable, Iterable, Iterator, Sequence

from ...rules.machine import Machine
from ...rules.nets.written import Net
from ...rules.wording import names
from ...stack.clauses import Clause
from ..alphabet.call_classes import CallClass, Facet, Kinds
from .graph import Graph, graph_of

MAX_FACETS = 4
"""Up to so many facets of a tool's input all combinations are looked at; with more, those of two, and all at once."""


class System:
    """What a clause lets through and what it remembers, as a graph over the masks of calls.

    `names` are the tools that the clause names, `unnamed` says that there are others.
    """

    def __init__(
        self,
        clause: Clause,
        machine: Machine,
        kinds: Kinds,
        graphs: dict[Hashable, Graph],
        *,
        is_allow_list: bool = False,
    ) -> None:
        self.clause = clause
        self.is_allow_list = is_allow_list
        self.machine = machine
        self._work = kinds.work
        slots = [
            kinds.reaches(slot.selector, clause.scope, own=slot.own, virtual_names=slot.virtual_names)
            for slot in machine.slots
        ]
        every = kinds.names.all if machine.every_call else ()
        self.names = frozenset(every).union(*(reach.names for slot in slots for reach in slot))
        self.unnamed = not self.names.issuperset(kinds.names.all)
        self._sure: dict[str, int] = {}
        self._perhaps: dict[str, list[tuple[int, frozenset[Facet]]]] = {}
        for n, slot in enumerate(slots):
            for reach in slot:
                self._work.spend(len(reach.names))
                for name in reach.names:
                    if reach.facets:
                        self._perhaps.setdefault(name, []).append((1 << n, reach.facets))
                    else:
                        self._sure[name] = self._sure.get(name, 0) | 1 << n
        self._letters: dict[tuple[str, frozenset[Facet]], tuple[frozenset[Facet], ...]] = {}
        named = {self.mask(name, some) for name in self.names for some in self.letters(name)}
        self.graph = graph_of(machine, frozenset(named | ({0} if self.unnamed else set())), graphs, kinds.work)
        self.admits, self.after, self.next = self.graph.admits, self.graph.after, self.graph.next

    def facets(self, name: str) -> frozenset[Facet]:
        """The facets of a name's input that the clause looks at."""
        return frozenset().union(*(facets for _, facets in self._perhaps.get(name, ())))

    def mask(self, name: str, facets: frozenset[Facet]) -> int:
        """The slots that a call of a name meets whose input has these facets and no others."""
        mask = self._sure.get(name, 0)
        perhaps = self._perhaps.get(name, ())
        self._work.spend(1 + len(perhaps) // 4)
        for slot, needed in perhaps:
            if needed <= facets:
                mask |= slot
        return mask

    def letters(self, name: str, facets: frozenset[Facet] = frozenset()) -> Iterator[frozenset[Facet]]:
        """The inputs of a name that have these facets, as far as the clause tells them apart, the least of each."""
        if name not in self._perhaps:
            return iter((facets,))
        own = self.facets(name)
        key = (name, facets & own)
        if key not in self._letters:
            found: list[tuple[int, frozenset[Facet]]] = []
            for some in combinations(own - facets):
                mask = self.mask(name, facets | some)
                self._work.spend(len(found) // 8)
                if not any(mask == other and less <= some for other, less in found):
                    found.append((mask, some))
            self._letters[key] = tuple(some for _, some in found)
        return (facets | some for some in self._letters[key])

    def masks(self, kind: CallClass) -> set[int]:
        """The masks that calls of a kind may have."""
        return {self.mask(kind.name, some) for some in self.letters(kind.name, kind.facets)}

    def barred(self, kinds: Kinds) -> Sequence[CallClass]:
        """The kinds of calls that are refused whatever came before: they are denied.

        None by a net written in full, which means all its transitions to fire.
        """
        if not self.graph.refused or (isinstance(self.clause.record, Net) and not self.clause.line):
            return ()
        named = (kind for name in self.names for kind in kinds.named(name))
        self._work.spend(len(self.names))
        return [kind for kind in named if self.masks(kind) <= self.graph.refused]

    def calls_of(self, mask: int) -> str:
        """The calls of a mask in words, by the first slot they meet."""
        met = [slot for n, slot in enumerate(self.machine.slots) if mask & 1 << n]
        return names(met[0].selector) if met else "any other call"


def systems_of(clauses: Iterable[Clause], kinds: Kinds, large: Container[str] = ()) -> list[System]:
    """The systems of the clauses, in the stack's order, but those of `large` nets."""
    graphs: dict[Hashable, Graph] = {}
    found: list[System] = []
    for clause in clauses:
        if clause.id not in large:
            admits = bool(clause.roles.admits)
            found += [System(clause, machine, kinds, graphs, is_allow_list=admits) for machine in clause.outlines()]
    return found


def combinations(facets: frozenset[Facet]) -> Iterator[frozenset[Facet]]:
    """Sets of facets that an input may have together."""
    if not facets:
        yield facets
        return
    listed = sorted(facets, key=repr)
    counts = range(len(listed) + 1) if len(listed) <= MAX_FACETS else (0, 1, 2, len(listed))
    for count in counts:
        yield from map(frozenset, itertools.combinations(listed, count))
