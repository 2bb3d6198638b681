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

from ..nets.records import Net
from .clauses import Clause
from .kinds import Facet, Kind, Kinds, Reach
from .net_model import NetModel, NetState
from .order_models import LASTING, OrderModel, forgives, order_model

MAX_WORK = 200_000
"""How often one search asks a clause about a call before it gives up."""
MAX_WORK_IN_ALL = 600_000
"""The same for all searches of one preflight together."""
MAX_FACETS = 4
"""Up to so many facets of a tool's input all combinations are looked at; with more, those of two, and all at once."""


class GaveUp(Exception):  # noqa: N818 - it ends a search, nothing is wrong
    """A search that became too large."""


class Letter(NamedTuple):
    """A call, and whether it succeeds."""

    name: str
    facets: frozenset[Facet]
    ok: bool


Entry: TypeAlias = tuple[tuple[Any, ...], Letter, bool]
"""How each clause sees a call, the call, and whether it is the wanted one."""


class Judge:
    """One clause in a search."""

    def __init__(self, clause: Clause, kinds: Kinds, model: OrderModel | NetModel) -> None:
        self.clause = clause
        self.model = model
        if isinstance(model, NetModel):
            self._slots: tuple[tuple[Reach, ...], ...] = (model.reaches,)
            self.start: Hashable = model.start()[0]
        else:
            self._slots = tuple(kinds.reaches(slot, clause) for slot in model.slots)
            self.start = model.start
        reaches = [reach for slot in self._slots for reach in slot]
        self.lasting = isinstance(model, LASTING)
        self.forgives = isinstance(model, NetModel) or forgives(model)
        self.awaits = not isinstance(model, NetModel) and not model.admits(self.start, 0)
        self.names = frozenset(name for reach in reaches for name in reach.names)
        self._facets = [(reach.names, reach.facets) for reach in reaches if reach.facets]
        self._looks: dict[tuple[str, frozenset[Facet]], Any] = {}

    def facets(self, name: str) -> frozenset[Facet]:
        """The facets of a name's input that the clause looks at."""
        return frozenset(facet for names, facets in self._facets if name in names for facet in facets)

    def look(self, name: str, facets: frozenset[Facet]) -> Any:
        """What the clause sees of such a call."""
        key = (name, facets)
        if key not in self._looks:
            if isinstance(self.model, NetModel):
                self._looks[key] = self.model.looks(name, facets)
            else:
                met = (any(name in r.names and r.facets <= facets for r in slot) for slot in self._slots)
                self._looks[key] = sum(1 << n for n, yes in enumerate(met) if yes)
        return self._looks[key]

    def next(self, state: Any, look: Any, ok: bool) -> Hashable | None:
        """The state after a call; None if the clause refuses it."""
        if not isinstance(self.model, NetModel):
            return self.model.after(state, look, ok) if self.model.admits(state, look) else None
        firing = self.model.firing(state, look)
        return None if firing is None else self._fired(state, firing, ok)

    def _fired(self, state: NetState, firing: Sequence[int], ok: bool) -> NetState:
        assert isinstance(self.model, NetModel)
        state, _ = self.model.call(state, firing)
        while state.waiting:
            state, _ = self.model.end(state, state.waiting[0], failed=not ok)
        return state


def judges_of(clauses: Iterable[Clause], kinds: Kinds, unbounded: frozenset[str]) -> list[Judge]:
    """The clauses that a search can follow; a net that does not stay small is left out."""
    found = []
    for clause in clauses:
        if not clause.binds:
            continue
        if isinstance(clause.record, Net):
            if clause.id not in unbounded and _followable(clause.record):
                found.append(Judge(clause, kinds, NetModel(clause, kinds)))
        elif model := order_model(clause.record):
            found.append(Judge(clause, kinds, model))
    return found


def _followable(net: Net) -> bool:
    """Whether ending each call at once loses nothing, and the tokens are few."""
    silent = any(not t.tools for t in net.transitions)
    deferred = any(t.deferred for t in net.transitions)
    return not (silent and deferred) and sum(net.initial_marking.values()) <= 2 * len(net.places) + 8


class OrderSearch:
    """Searches over the calls that are possible as far as needs go; `work` is what earlier searches took."""

    def __init__(self, judges: list[Judge], kinds: Kinds, possible: Container[Any], work: int = 0) -> None:
        self._judges = judges
        self._kinds = kinds
        self.work = work
        self._never: dict[str, list[frozenset[Facet]]] = {}
        for kind in kinds.all:
            if kind not in possible:
                self._never.setdefault(kind.name, []).append(kind.facets)
        self._closed = {name for name, facets in self._never.items() if frozenset() in facets}

    def concerned(self, kind: Kind) -> list[Judge]:
        """The clauses that look at every call of a kind, or at every first call."""
        return [judge for judge in self._judges if judge.awaits or judge.look(kind.name, kind.facets)]

    def sight(self, kind: Kind) -> tuple[Hashable, ...]:
        """How each clause that names a kind sees it; kinds of one sight fare alike."""
        seen = [(n, judge.look(kind.name, kind.facets)) for n, judge in enumerate(self._judges)]
        looked = [(n, look) for n, look in seen if look]
        extra = [(n, judge.facets(kind.name)) for n, judge in enumerate(self._judges) if judge.facets(kind.name)]
        return (*looked, *extra)

    def core(self, kind: Kind) -> list[Clause] | None:
        """The fewest clauses that together never let calls of a kind through; None if some order does.

        Raises GaveUp if that cannot be told.
        """
        judges = self._refined(kind)
        if judges is None:
            return None
        for judge in list(judges):
            fewer = [other for other in judges if other is not judge]
            with contextlib.suppress(GaveUp):
                if fewer and self._trace(kind, fewer) is None:
                    judges = fewer
        return [judge.clause for judge in judges]

    def _refined(self, kind: Kind) -> list[Judge] | None:
        """Clauses under which there is no trace; None if there is one under all."""
        judges = self.concerned(kind)
        while True:
            trace = self._trace(kind, judges)
            if trace is None:
                return judges
            refusing = [judge for judge in self._judges if judge not in judges and self._refuses(judge, trace)]
            if not refusing:
                return None
            judges = judges + refusing

    def _refuses(self, judge: Judge, trace: Sequence[Letter]) -> bool:
        state: Any = judge.start
        for name, facets, ok in trace:
            state = judge.next(state, judge.look(name, facets), ok)
            if state is None:
                return True
        return False

    def goes(self, calls: Sequence[Kind]) -> bool:
        """Whether these calls in this order, all successful, are let through by every clause."""
        trace = [Letter(call.name, call.facets, ok=True) for call in calls]
        return not any(self._refuses(judge, trace) for judge in self._judges)

    def _trace(self, kind: Kind, judges: Sequence[Judge]) -> list[Letter] | None:
        """A shortest trace that ends with a call of the kind, under some of the clauses. Raises GaveUp."""
        trace = self._shortest(self._letters(kind, judges), judges)
        names = {name for judge in judges for name in judge.names}
        if trace is None and any(len(self._facets(name, kind, judges)) > MAX_FACETS for name in names):
            raise GaveUp
        return trace

    def _shortest(self, letters: Sequence[Entry], judges: Sequence[Judge]) -> list[Letter] | None:
        start = tuple(judge.start for judge in judges)
        before: dict[tuple[Any, ...], tuple[tuple[Any, ...], Letter] | None] = {start: None}
        queue = deque([start])
        work = min(MAX_WORK, MAX_WORK_IN_ALL - self.work)
        while queue:
            at = queue.popleft()
            self.work += len(letters) * len(judges)
            work -= len(letters) * len(judges)
            if work < 0:
                raise GaveUp
            for looks, letter, wanted in letters:
                after = _next(judges, at, looks, letter.ok)
                if after is None:
                    continue
                if wanted:
                    return [*_trail(before, at), letter]
                if after not in before:
                    before[after] = (at, letter)
                    queue.append(after)
        return None

    def _letters(self, kind: Kind, judges: Sequence[Judge]) -> list[Entry]:
        """The calls that the clauses can tell apart, one of each; those of the kind are wanted, and come first."""
        found: dict[tuple[Any, ...], Entry] = {}
        outcomes = (True, False) if any(judge.forgives for judge in judges) else (True,)
        named = {name for judge in judges for name in judge.names} | {kind.name}
        others = (name for name in self._kinds.names.all if name not in named and name not in self._closed)
        for name in (*sorted(named), *itertools.islice(others, 1)):
            for facets in self._inputs(name, kind, judges):
                looks = tuple(judge.look(name, facets) for judge in judges)
                wanted = name == kind.name and kind.facets <= facets
                for ok in outcomes:
                    found.setdefault((looks, ok, wanted), (looks, Letter(name, facets, ok), wanted))
        return sorted(found.values(), key=lambda entry: not entry[2])

    def _inputs(self, name: str, kind: Kind, judges: Sequence[Judge]) -> Iterator[frozenset[Facet]]:
        """The combinations of facets that possible calls of a name have."""
        listed = sorted(self._facets(name, kind, judges), key=repr)
        counts = range(len(listed) + 1) if len(listed) <= MAX_FACETS else (0, 1, 2, len(listed))
        for count in counts:
            for some in map(frozenset, itertools.combinations(listed, count)):
                if not any(never <= some for never in self._never.get(name, ())):
                    yield some

    def _facets(self, name: str, kind: Kind, judges: Sequence[Judge]) -> frozenset[Facet]:
        facets = frozenset(facet for judge in judges for facet in judge.facets(name))
        return facets | kind.facets if name == kind.name else facets


def _next(
    judges: Sequence[Judge], states: tuple[Any, ...], looks: tuple[Any, ...], ok: bool
) -> tuple[Any, ...] | None:
    after = []
    for judge, state, look in zip(judges, states, looks, strict=True):
        changed = judge.next(state, look, ok)
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
