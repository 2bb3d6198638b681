"""Whether some order of calls lets a call through, all rules about order and all nets taken together.

Few rules matter for most calls. So a trace is looked for under those that name the call; the rules that refuse a
step of it are added, and it is looked for again: until one stands under all rules, or there is none.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import Container, Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from ...stack.clauses import Clause
from ..alphabet.call_classes import CallClass, Facet, Kinds
from .graph import ENDINGS, Ending
from .system import MAX_FACETS, System, combinations

MAX_WORK = 200_000
"""How often one search asks a clause about a call before it gives up."""
MAX_WORK_IN_ALL = 600_000
"""The same for all searches of one preflight together."""
END = CallClass("")
"""The end of the run, treated as one more call: a clause lets it come when it owes nothing."""


class GaveUp(Exception):  # noqa: N818 - it ends a search, nothing is wrong
    """A search that became too large."""


class Letter(NamedTuple):
    """A call, and whether it succeeds."""

    name: str
    facets: frozenset[Facet]
    ending: Ending = "completed"


Entry: TypeAlias = tuple[tuple[int, ...], Letter, bool]
"""How each clause sees a call, the call, and whether it is the wanted one."""


class Product:
    """Searches over the calls that each clause by itself lets through; `work` is what earlier searches took."""

    def __init__(self, systems: list[System], kinds: Kinds, possible: Container[CallClass], work: int = 0) -> None:
        self._systems = systems
        self._kinds = kinds
        self.work = work
        self._never: dict[str, list[frozenset[Facet]]] = {}
        for kind in kinds.all:
            if kind not in possible:
                self._never.setdefault(kind.name, []).append(kind.facets)
        self._closed = {name for name, facets in self._never.items() if frozenset() in facets}

    def concerned(self, kind: CallClass) -> list[System]:
        """The clauses that look at every call of a kind, or at every first call; at the end, those that want calls
        which others stand in the way of.
        """
        self._kinds.work.spend(len(self._systems))
        if kind == END:
            others = [system for system in self._systems if not system.graph.lasting]
            return [
                s for s in self._systems if s.graph.owes and any(o is not s and o.names & s.names for o in others)
            ]
        return [system for system in self._systems if system.graph.awaits or system.mask(*kind)]

    def sight(self, kind: CallClass) -> tuple[Hashable, ...]:
        """How each clause that names a kind sees it; kinds of one sight fare alike."""
        self._kinds.work.spend(len(self._systems))
        seen = [(n, system.mask(*kind)) for n, system in enumerate(self._systems)]
        looked = [(n, mask) for n, mask in seen if mask]
        extra = [(n, s.facets(kind.name)) for n, s in enumerate(self._systems) if s.facets(kind.name)]
        return (*looked, *extra)

    def core(self, kind: CallClass) -> list[Clause] | None:
        """The fewest clauses that together never let calls of a kind through; None if some order does.

        Raises GaveUp if that cannot be told.
        """
        systems = self._refined(kind)
        if systems is None:
            return None
        for system in list(systems):
            fewer = [other for other in systems if other is not system]
            with contextlib.suppress(GaveUp):
                if fewer and self._trace(kind, fewer) is None:
                    systems = fewer
        return list({system.clause.id: system.clause for system in systems}.values())

    def _refined(self, kind: CallClass) -> list[System] | None:
        """Clauses under which there is no trace; None if there is one under all."""
        systems = self.concerned(kind)
        while True:
            trace = self._trace(kind, systems)
            if trace is None:
                return systems
            refusing = [system for system in self._systems if system not in systems and _refuses(system, trace)]
            if not refusing:
                return None
            # What else is owed takes many calls to pay; that some of it cannot be shows sooner without.
            systems = systems + ([system for system in refusing if not system.graph.owes] or refusing)

    def goes(self, calls: Sequence[CallClass]) -> bool:
        """Whether these calls in this order, all successful, are let through by every clause."""
        trace = [Letter(call.name, call.facets) for call in calls]
        for system in self._systems:
            self._kinds.work.spend(1 + len(trace))
            if _refuses(system, trace):
                return False
        return True

    def _trace(self, kind: CallClass, systems: Sequence[System]) -> list[Letter] | None:
        """A shortest trace that ends with a call of the kind, under some of the clauses. Raises GaveUp."""
        trace = self._shortest(self._letters(kind, systems), systems)
        names = {name for system in systems for name in system.names}
        if trace is None and any(len(self._facets(name, kind, systems)) > MAX_FACETS for name in names):
            raise GaveUp
        return trace

    def _shortest(self, letters: Sequence[Entry], systems: Sequence[System]) -> list[Letter] | None:
        start = tuple(system.graph.start for system in systems)
        before: dict[tuple[Any, ...], tuple[tuple[Any, ...], Letter] | None] = {start: None}
        queue = deque([start])
        work = min(MAX_WORK, MAX_WORK_IN_ALL - self.work)
        while queue:
            at = queue.popleft()
            self.work += len(letters) * len(systems)
            self._kinds.work.spend(len(letters) * len(systems))
            work -= len(letters) * len(systems)
            if work < 0:
                raise GaveUp
            for looks, letter, wanted in letters:
                after = _next(systems, at, looks, letter)
                if after is None:
                    continue
                if wanted:
                    return [*_trail(before, at), letter]
                if after not in before:
                    before[after] = (at, letter)
                    queue.append(after)
        return None

    def _letters(self, kind: CallClass, systems: Sequence[System]) -> list[Entry]:
        """The calls that the clauses can tell apart, one of each; those of the kind are wanted, and come first."""
        found: dict[tuple[Any, ...], Entry] = {}
        endings = ENDINGS if any(system.graph.forgives for system in systems) else ENDINGS[:1]
        named = {name for system in systems for name in system.names} | {kind.name}
        others = (name for name in self._kinds.names.all if name not in named and name not in self._closed)
        for name in (*sorted(named), *itertools.islice(others, 1)):
            for facets in self._inputs(name, kind, systems):
                self._kinds.work.spend(len(systems))
                looks = tuple(system.mask(name, facets) for system in systems)
                wanted = name == kind.name and kind.facets <= facets
                for ending in endings:
                    found.setdefault((looks, ending, wanted), (looks, Letter(name, facets, ending), wanted))
        return sorted(found.values(), key=lambda entry: not entry[2])

    def _inputs(self, name: str, kind: CallClass, systems: Sequence[System]) -> Iterator[frozenset[Facet]]:
        """The combinations of facets that possible calls of a name have."""
        for some in combinations(self._facets(name, kind, systems)):
            never_come = self._never.get(name, ())
            self._kinds.work.spend(1 + len(never_come))
            if not any(never <= some for never in never_come):
                yield some

    def _facets(self, name: str, kind: CallClass, systems: Sequence[System]) -> frozenset[Facet]:
        facets = frozenset(facet for system in systems for facet in system.facets(name))
        return facets | kind.facets if name == kind.name else facets


def _refuses(system: System, trace: Iterable[Letter]) -> bool:
    state = system.graph.start
    for name, facets, ending in trace:
        if name == END.name:
            return not system.graph.may_end(state)
        after = system.next(state, system.mask(name, facets), ending)
        if after is None:
            return True
        state = after
    return False


def _next(
    systems: Sequence[System], states: Sequence[int], masks: Sequence[int], letter: Letter
) -> tuple[int, ...] | None:
    if letter.name == END.name:
        return (
            tuple(states) if all(s.graph.may_end(state) for s, state in zip(systems, states, strict=True)) else None
        )
    after = []
    for system, state, mask in zip(systems, states, masks, strict=True):
        changed = system.next(state, mask, letter.ending)
        if changed is None:
            return None
        after.append(changed)
    return tuple(after)


def _trail(before: Any, at: Any) -> list[Letter]:
    letters = []
    while before[at] is not None:
        at, letter = before[at]
        letters.append(letter)
    return letters[::-1]
