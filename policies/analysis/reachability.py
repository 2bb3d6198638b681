"""For each clause by itself: the kinds of calls it can ever let through, and why it blocks the others.

The calls found so far lead every clause's system on; what a clause admits in some state it can be led to, it does not
stand in the way of. So what is called impossible is impossible for certain.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Container, Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from ..stack.clauses import Clause
from .call_classes import CallClass, InputPredicate, Kinds
from .explorer import ENDINGS, MAX_FACETS, Ending, Price, System, combinations, shortest


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

    def path_to(self, kind: CallClass) -> list[CallClass]:
        """The calls on one way to a kind, in order, the kind last."""
        path: dict[CallClass, None] = {}
        stack = [(kind, False)]
        while stack:
            at, ready = stack.pop()
            self.kinds.work.spend()
            if ready:
                path[at] = None
            elif at not in path:
                stack.append((at, True))
                stack += [(other, False) for other in reversed(self._needed[at])]
        return list(path)

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
            path = self._path_in(system, kind)
            if path is None:
                return False
            needed |= dict.fromkeys(path)
        self.found[kind] = len(self.found)
        self._needed[kind] = tuple(other for other in needed if other != kind)
        return True

    def _path_in(self, system: System, kind: CallClass) -> tuple[CallClass, ...] | None:
        """The kinds of calls that lead a system to where it admits a kind; None if it never does."""
        inputs = system.letters(kind.name, kind.facets)
        masks = {system.mask(kind.name, some) for some in inputs if self._open(kind, some)}
        for state, path in self._reached[system].items():
            self.kinds.work.spend(1 + len(masks))
            if any(system.admits(state, mask) for mask in masks):
                return path
        return None

    def _open(self, kind: CallClass, facets: frozenset[InputPredicate]) -> bool:
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
            if self._path_in(system, kind) is None:
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


MAX_WORK = 200_000
"""How often one search asks a clause about a call before it gives up."""

MAX_WORK_IN_ALL = 600_000
"""The same for all searches of one preflight together."""

END = CallClass("")
"""The end of the run, treated as one more call: a clause lets it come when it owes nothing."""


class BoundExceeded(Exception):  # noqa: N818 - it ends a search, nothing is wrong
    """A search that became too large."""


class Symbol(NamedTuple):
    """A call, and whether it succeeds."""

    name: str
    facets: frozenset[InputPredicate]
    ending: Ending = "completed"


Entry: TypeAlias = tuple[tuple[int, ...], Symbol, bool]
"""How each clause sees a call, the call, and whether it is the wanted one."""


class Product:
    """Searches over the calls that each clause by itself lets through; `work` is what earlier searches took."""

    def __init__(self, systems: list[System], kinds: Kinds, possible: Container[CallClass], work: int = 0) -> None:
        self._systems = systems
        self._kinds = kinds
        self.work = work
        self._never: dict[str, list[frozenset[InputPredicate]]] = {}
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
            obliged = [system for system in self._systems if system.graph.has_obligation]
            return [s for s in obliged if any(o is not s and o.names & s.names for o in others)]
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

        Raises BoundExceeded if that cannot be told.
        """
        systems = self._refined(kind)
        if systems is None:
            return None
        for system in list(systems):
            fewer = [other for other in systems if other is not system]
            with contextlib.suppress(BoundExceeded):
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
            systems = systems + ([system for system in refusing if not system.graph.has_obligation] or refusing)

    def goes(self, calls: Sequence[CallClass]) -> bool:
        """Whether these calls in this order, all successful, are let through by every clause."""
        trace = [Symbol(call.name, call.facets) for call in calls]
        for system in self._systems:
            self._kinds.work.spend(1 + len(trace))
            if _refuses(system, trace):
                return False
        return True

    def _trace(self, kind: CallClass, systems: Sequence[System]) -> list[Symbol] | None:
        """A shortest trace that ends with a call of the kind, under some of the clauses. Raises BoundExceeded."""
        trace = self._shortest(self._letters(kind, systems), systems)
        names = {name for system in systems for name in system.names}
        if trace is None and any(len(self._facets(name, kind, systems)) > MAX_FACETS for name in names):
            raise BoundExceeded
        return trace

    def _shortest(self, letters: Sequence[Entry], systems: Sequence[System]) -> list[Symbol] | None:
        most = self.work + min(MAX_WORK, MAX_WORK_IN_ALL - self.work)

        def steps(at: tuple[int, ...]) -> Iterator[tuple[Symbol, Price, tuple[int, ...] | None]]:
            self.work += len(letters) * len(systems)
            self._kinds.work.spend(len(letters) * len(systems))
            if self.work > most:
                raise BoundExceeded
            for looks, letter, wanted in letters:
                after = _next(systems, at, looks, letter)
                if after is not None:
                    yield letter, (1, 0), None if wanted else after

        return shortest(tuple(system.graph.start for system in systems), steps).steps

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
                    found.setdefault((looks, ending, wanted), (looks, Symbol(name, facets, ending), wanted))
        return sorted(found.values(), key=lambda entry: not entry[2])

    def _inputs(self, name: str, kind: CallClass, systems: Sequence[System]) -> Iterator[frozenset[InputPredicate]]:
        """The combinations of facets that possible calls of a name have."""
        for some in combinations(self._facets(name, kind, systems)):
            never_come = self._never.get(name, ())
            self._kinds.work.spend(1 + len(never_come))
            if not any(never <= some for never in never_come):
                yield some

    def _facets(self, name: str, kind: CallClass, systems: Sequence[System]) -> frozenset[InputPredicate]:
        facets = frozenset(facet for system in systems for facet in system.facets(name))
        return facets | kind.facets if name == kind.name else facets


def _refuses(system: System, trace: Iterable[Symbol]) -> bool:
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
    systems: Sequence[System], states: Sequence[int], masks: Sequence[int], letter: Symbol
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
