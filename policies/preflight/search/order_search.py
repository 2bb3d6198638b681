"""Whether some order of calls lets a call through, all rules about order and all nets taken together.

Few rules matter for most calls. So a trace is looked for under those that name the call; the rules that refuse a
step of it are added, and it is looked for again: until one stands under all rules, or there is none.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import Container, Hashable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from ...stack.clauses import Clause
from ..alphabet.call_classes import Facet, Kind, Kinds
from .order_judges import END, Judge

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
        """The clauses that look at every call of a kind, or at every first call; at the end, those that want calls
        which others stand in the way of.
        """
        if kind == END:
            others = [judge for judge in self._judges if not judge.lasting]
            return [j for j in self._judges if j.owes and any(o is not j and o.names & j.names for o in others)]
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
            # What else is owed takes many calls to pay; that some of it cannot be shows sooner without.
            judges = judges + ([judge for judge in refusing if not judge.owes] or refusing)

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
