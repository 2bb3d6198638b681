"""For each clause by itself: the kinds of calls it can ever allow, and why it denies the others.

A fixpoint: the calls found so far advance every clause's graph, which may allow more. A clause counts as allowing
what it allows in any state that it can reach, so what is called impossible is impossible for certain.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Container, Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from ..stack.clauses import Clause
from ..values.work_budget import OutOfWork
from .call_classes import CallClass, CallClasses, InputPredicate
from .explorer import ENDINGS, MAX_PREDICATES, ClauseGraph, Ending, Price, combinations, shortest


class Step(NamedTuple):
    """Why calls of a kind never come: the clause wants one of `wanted` first; None where no call would satisfy it."""

    kind: CallClass
    clause: Clause
    wanted: CallClass | None


class Saturation:
    """The kinds in `found` can be allowed, in the order in which they were found.

    `always_denied` are the kinds that a clause denies, `cores` those that are excluded, with the clauses that leave
    no order in which they could come.
    """

    def __init__(self, graphs: Iterable[ClauseGraph], kinds: CallClasses) -> None:
        self.kinds = kinds
        complete = kinds.names.complete
        self.graphs = [s for s in graphs if s.shared.moves is not None and (complete or not s.is_allow_list)]
        self.cores: dict[CallClass, list[Clause]] = {}
        self._naming: dict[str, list[ClauseGraph]] = {}
        for graph in self.graphs:
            for name in graph.names:
                self._naming.setdefault(name, []).append(graph)
        self.always_denied = frozenset(kind for graph in self.graphs for kind in graph.always_denied(kinds))
        self.found: dict[CallClass, int] = {}
        self._needed: dict[CallClass, tuple[CallClass, ...]] = {}
        self._reached: dict[ClauseGraph, dict[int, tuple[CallClass, ...]]] = {}
        self._saturate()

    def exclude(self, cores: dict[CallClass, list[Clause]]) -> None:
        """Note that some kinds come in no order; whatever needs them cannot come either. All or nothing is noted."""
        before = self.cores, self.found, self._needed, self._reached
        self.cores = self.cores | cores
        try:
            self._saturate()
        except OutOfWork:
            self.cores, self.found, self._needed, self._reached = before
            raise

    def path_to(self, kind: CallClass) -> list[CallClass]:
        """The calls on one way to a kind, in order, the kind last."""
        path = {kind}
        for at in (todo := [kind]):
            self.kinds.work.spend()
            todo += [other for other in self._needed[at] if other not in path]
            path.update(self._needed[at])
        return sorted(path, key=self.found.__getitem__)

    def why_never(self, kind: CallClass) -> list[Step]:
        """A shortest chain from a kind to one that no call can satisfy; if every chain is a circle, one of them."""

        def steps(at: CallClass) -> Iterator[tuple[Step, Price, CallClass | None]]:
            for step in self._needed_calls(at):
                yield step, (0 if step.wanted is None else 1, 0), step.wanted

        chain = shortest(kind, steps).steps
        if chain is not None:
            return chain
        round_trip: dict[CallClass, Step] = {}
        while kind not in round_trip:
            step = round_trip[kind] = self._needed_calls(kind)[0]
            assert step.wanted is not None
            kind = step.wanted
        return list(round_trip.values())

    def _kinds_of(self, graph: ClauseGraph) -> Iterable[CallClass]:
        return (kind for name in graph.names for kind in self.kinds.named(name))

    def _saturate(self) -> None:
        """Find all kinds of calls that can be allowed, each by those found before."""
        self.found, self._needed = {}, {}
        self._reached = {s: {s.shared.start: ()} for s in self.graphs}
        pending = dict.fromkeys(kind for kind in self.kinds.all if kind not in self.cores)
        again = set(self.kinds.names.all)
        while again:
            self.kinds.work.spend(len(pending))
            ready = [kind for kind in pending if kind.name in again and self._add_reached(kind)]
            for kind in ready:
                del pending[kind]
            again = {kind.name for kind in ready}  # such calls may have more predicates now
            named = dict.fromkeys(graph for name in again for graph in self._naming.get(name, ()))
            for graph in named:
                if self._extend(graph):
                    again |= graph.names

    def _add_reached(self, kind: CallClass) -> bool:
        """Note a kind that every clause allows in some state, and those to which such a call belongs."""
        if kind in self.found:
            return True
        for predicates in self._listed(kind):
            meant = CallClass(kind.name, predicates)
            paths = [self._path_in(graph, meant) for graph in self._naming.get(kind.name, ())]
            kinds = self.kinds.within(meant)
            if None in paths or not self.cores.keys().isdisjoint(kinds):
                continue
            needed = tuple(dict.fromkeys(other for path in paths for other in path or ()))
            for each in kinds:
                if each not in self.found:
                    self.found[each], self._needed[each] = len(self.found), needed
            return True
        return False

    def _listed(self, kind: CallClass) -> Iterator[frozenset[InputPredicate]]:
        """The inputs of a kind that every allow list allows, the least ones."""
        found = iter((kind.predicates,))
        for graph in self._naming.get(kind.name, ()):
            if graph.is_allow_list:
                found = self._allowed(graph, kind.name, found)
        return found

    def _allowed(
        self, graph: ClauseGraph, name: str, inputs: Iterable[frozenset[InputPredicate]]
    ) -> Iterator[frozenset[InputPredicate]]:
        for some in inputs:
            for each in graph.distinct_inputs(name, some):
                self.kinds.work.spend()
                if graph.allows(graph.shared.start, graph.mask(name, each)):
                    yield each

    def _path_in(self, graph: ClauseGraph, kind: CallClass) -> tuple[CallClass, ...] | None:
        """The kinds of calls on a path to a state in which a graph allows a kind; None if it never does."""
        inputs = graph.distinct_inputs(kind.name, kind.predicates)
        masks = {graph.mask(kind.name, some) for some in inputs if self._open(kind, some)}
        for state, path in self._reached[graph].items():
            self.kinds.work.spend(1 + len(masks))
            if any(graph.allows(state, mask) for mask in masks):
                return path
        return None

    def _open(self, kind: CallClass, predicates: frozenset[InputPredicate]) -> bool:
        """Whether a call of a kind may have these predicates: each kind it is of, beyond this one's, was found."""
        within = self.kinds.within(CallClass(kind.name, predicates))
        return all(other in self.found for other in within if not other.predicates <= kind.predicates)

    def _extend(self, graph: ClauseGraph) -> bool:
        """Advance a graph by the calls found so far; whether that reaches a new state."""
        if not graph.shared.changes:
            return False
        reached = self._reached[graph]
        before = len(reached)
        symbols = [*([(CallClass("other"), 0)] if graph.unnamed else []), *self._symbols(graph)]
        states = list(reached)
        for state in states:
            self.kinds.work.spend(1 + len(symbols))
            for kind, mask in symbols:
                if graph.allows(state, mask):
                    for ending in ENDINGS:
                        after = graph.after(state, mask, ending)
                        if after not in reached:
                            reached[after] = (*reached[state], kind) if mask else reached[state]
                            states.append(after)
        return len(reached) > before

    def _symbols(self, graph: ClauseGraph) -> list[tuple[CallClass, int]]:
        """The calls found so far that a graph tells apart, one of each."""
        found: dict[int, CallClass] = {}
        self.kinds.work.spend(len(self.found))
        for kind in self.found:
            if kind.name in graph.names:
                for predicates in graph.distinct_inputs(kind.name):
                    symbol = CallClass(kind.name, predicates)
                    if all(other in self.found for other in self.kinds.within(symbol)):
                        found.setdefault(graph.mask(*symbol), kind)
        return [(kind, mask) for mask, kind in found.items()]

    def _needed_calls(self, kind: CallClass) -> Sequence[Step]:
        """For each clause that never allows a kind, the calls it would need, none of which can come."""
        steps: list[Step] = []
        for graph in self._naming.get(kind.name, ()):
            if self._path_in(graph, kind) is None:
                wanted = self._missing(graph, kind)
                steps += [Step(kind, graph.clause, other) for other in wanted]
                if not wanted:
                    steps.append(Step(kind, graph.clause, None))
        if kind in self.cores:
            steps.append(Step(kind, self.cores[kind][0], None))
        return steps or [Step(kind, self._naming[kind.name][0].clause, None)]

    def _missing(self, graph: ClauseGraph, kind: CallClass) -> list[CallClass]:
        """The impossible kinds, calls of which would take a graph to a state in which it allows a kind."""
        mask = graph.mask(*kind)
        self.kinds.work.spend(len(graph.shared.moves or ()))
        ways = {
            move.mask
            for move in graph.shared.moves or ()
            if not graph.allows(move.before, mask) and graph.allows(move.after, mask)
        }
        missing = (k for k in self._kinds_of(graph) if k not in self.found and graph.mask(*k) in ways)
        return sorted(missing, key=repr)


MAX_WORK = 200_000
"""How often one search asks a clause about a call before it gives up."""

MAX_WORK_IN_ALL = 600_000
"""The same for all searches of one preflight together."""

END = CallClass("")
"""The end of the run, treated as one more call: a clause allows it when it owes nothing."""


class BoundExceeded(Exception):  # noqa: N818 - it ends a search, nothing is wrong
    """A search that became too large."""


class Symbol(NamedTuple):
    """A call, and whether it succeeds."""

    kind: CallClass
    ending: Ending = "completed"


Entry: TypeAlias = tuple[tuple[int, ...], Symbol, bool]
"""How each clause sees a call, the call, and whether it is the wanted one."""


class Product:
    """Searches over the calls that each clause by itself allows; `work` is what earlier searches took."""

    def __init__(
        self, graphs: list[ClauseGraph], kinds: CallClasses, possible: Container[CallClass], work: int = 0
    ) -> None:
        self._graphs = graphs
        self._kinds = kinds
        self.work = work
        self._never: dict[str, list[frozenset[InputPredicate]]] = {}
        for kind in kinds.all:
            if kind not in possible:
                self._never.setdefault(kind.name, []).append(kind.predicates)
        self._closed = {name for name, predicates in self._never.items() if frozenset() in predicates}

    def concerned(self, kind: CallClass) -> list[ClauseGraph]:
        """The clauses that look at every call of a kind, or every first call; at the end, those in conflict."""
        self._kinds.work.spend(len(self._graphs))
        if kind == END:
            others = [graph for graph in self._graphs if not graph.shared.allows_for_good]
            obliged = [graph for graph in self._graphs if graph.shared.has_obligation]
            return [s for s in obliged if any(o is not s and o.names & s.names for o in others)]
        return [graph for graph in self._graphs if graph.shared.needs_a_call_first or graph.mask(*kind)]

    def sight(self, kind: CallClass) -> tuple[Hashable, ...]:
        """How each clause that names a kind sees it; kinds of one sight fare alike."""
        self._kinds.work.spend(len(self._graphs))
        seen = ((n, graph.mask(*kind), graph.predicates(kind.name)) for n, graph in enumerate(self._graphs))
        return tuple(each for each in seen if any(each[1:]))

    def core(self, kind: CallClass) -> list[Clause] | None:
        """The fewest clauses that together never allow calls of a kind; None if some order does.

        Raises BoundExceeded if that cannot be told.
        """
        graphs = self._refined(kind)
        if graphs is None:
            return None
        for graph in list(graphs):
            fewer = [other for other in graphs if other is not graph]
            with contextlib.suppress(BoundExceeded):
                if fewer and self._trace(kind, fewer) is None:
                    graphs = fewer
        return list({graph.clause.id: graph.clause for graph in graphs}.values())

    def _refined(self, kind: CallClass) -> list[ClauseGraph] | None:
        """Clauses under which there is no trace; None if there is one under all."""
        graphs = self.concerned(kind)
        while True:
            trace = self._trace(kind, graphs)
            if trace is None:
                return graphs
            denying = [graph for graph in self._graphs if graph not in graphs and _denies(graph, trace)]
            if not denying:
                return None
            # What else is owed takes many calls to pay; that some of it cannot be shows sooner without.
            graphs = graphs + ([graph for graph in denying if not graph.shared.has_obligation] or denying)

    def goes(self, calls: Sequence[CallClass]) -> bool:
        """Whether these calls in this order, all successful, are allowed by every clause."""
        trace = [Symbol(call) for call in calls]
        for graph in self._graphs:
            self._kinds.work.spend(1 + len(trace))
            if _denies(graph, trace):
                return False
        return True

    def _trace(self, kind: CallClass, graphs: Sequence[ClauseGraph]) -> list[Symbol] | None:
        """A shortest trace that ends with a call of the kind, under some of the clauses. Raises BoundExceeded."""
        trace = self._shortest(self._symbols(kind, graphs), graphs)
        names = {name for graph in graphs for name in graph.names}
        if trace is None and any(len(self._predicates(name, kind, graphs)) > MAX_PREDICATES for name in names):
            raise BoundExceeded
        return trace

    def _shortest(self, symbols: Sequence[Entry], graphs: Sequence[ClauseGraph]) -> list[Symbol] | None:
        """A shortest trace of these calls that ends with a wanted one; None without one. Raises BoundExceeded."""
        most = self.work + min(MAX_WORK, MAX_WORK_IN_ALL - self.work)

        def steps(at: tuple[int, ...]) -> Iterator[tuple[Symbol, Price, tuple[int, ...] | None]]:
            self.work += len(symbols) * len(graphs)
            self._kinds.work.spend(len(symbols) * len(graphs))
            if self.work > most:
                raise BoundExceeded
            for looks, symbol, wanted in symbols:
                after = _next(graphs, at, looks, symbol)
                if after is not None:
                    yield symbol, (0 if wanted else 1, 0), None if wanted else after

        return shortest(tuple(graph.shared.start for graph in graphs), steps).steps

    def _symbols(self, kind: CallClass, graphs: Sequence[ClauseGraph]) -> list[Entry]:
        """The calls that the clauses can tell apart, one of each; those of the kind are wanted, and come first."""
        found: dict[tuple[Any, ...], Entry] = {}
        endings = ENDINGS if any(graph.shared.failures_matter for graph in graphs) else ENDINGS[:1]
        named = {name for graph in graphs for name in graph.names} | {kind.name}
        others = (name for name in self._kinds.names.all if name not in named and name not in self._closed)
        for name in (*sorted(named), *itertools.islice(others, 1)):
            for predicates in self._inputs(name, kind, graphs):
                self._kinds.work.spend(len(graphs))
                looks = tuple(graph.mask(name, predicates) for graph in graphs)
                wanted = name == kind.name and kind.predicates <= predicates
                for ending in endings:
                    symbol = Symbol(CallClass(name, predicates), ending)
                    found.setdefault((looks, ending, wanted), (looks, symbol, wanted))
        return sorted(found.values(), key=lambda entry: not entry[2])

    def _inputs(
        self, name: str, kind: CallClass, graphs: Sequence[ClauseGraph]
    ) -> Iterator[frozenset[InputPredicate]]:
        """The combinations of predicates that possible calls of a name have."""
        for some in combinations(self._predicates(name, kind, graphs)):
            never_come = self._never.get(name, ())
            self._kinds.work.spend(1 + len(never_come))
            if not any(never <= some for never in never_come):
                yield some

    def _predicates(self, name: str, kind: CallClass, graphs: Sequence[ClauseGraph]) -> frozenset[InputPredicate]:
        predicates = frozenset(predicate for graph in graphs for predicate in graph.predicates(name))
        return predicates | kind.predicates if name == kind.name else predicates


def _denies(graph: ClauseGraph, trace: Iterable[Symbol]) -> bool:
    state = graph.shared.start
    for symbol in trace:
        after = _next([graph], [state], [graph.mask(*symbol.kind)], symbol)
        if after is None:
            return True
        [state] = after
    return False


def _next(
    graphs: Sequence[ClauseGraph], states: Sequence[int], masks: Sequence[int], symbol: Symbol
) -> tuple[int, ...] | None:
    if symbol.kind == END:
        return (
            tuple(states) if all(s.shared.may_end(state) for s, state in zip(graphs, states, strict=True)) else None
        )
    after = []
    for graph, state, mask in zip(graphs, states, masks, strict=True):
        changed = graph.next(state, mask, symbol.ending)
        if changed is None:
            return None
        after.append(changed)
    return tuple(after)
