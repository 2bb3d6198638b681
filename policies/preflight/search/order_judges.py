"""The clauses that a search for an order of calls follows, each with its model of what a call does to it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from ...rules.nets.written import Net
from ...stack.clauses import Clause
from ..alphabet.call_classes import Facet, Kind, Kinds, Reach
from .modelling import demand_model, forgives, may_end, order_model
from .net_model import NetModel, NetState
from .order_models import LASTING, OrderModel

END = Kind("")
"""The end of the run, looked at as one more call: only what owes nothing lets it come."""


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
        self.owes = not may_end(model, self.start)
        self.awaits = not isinstance(model, NetModel) and not model.admits(self.start, 0)
        self.names = frozenset(name for reach in reaches for name in reach.names)
        self._facets = [(reach.names, reach.facets) for reach in reaches if reach.facets]
        self._looks: dict[tuple[str, frozenset[Facet]], Any] = {}

    def facets(self, name: str) -> frozenset[Facet]:
        """The facets of a name's input that the clause looks at."""
        return frozenset(facet for names, facets in self._facets if name in names for facet in facets)

    def look(self, name: str, facets: frozenset[Facet]) -> Any:
        """What the clause sees of such a call."""
        if name == END.name:
            return END
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
        if look is END:
            return state if may_end(self.model, state) else None
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


def demands_of(clauses: Iterable[Clause], kinds: Kinds) -> list[Judge]:
    """The clauses by which some calls must have come by the end."""
    models = ((clause, demand_model(clause.record)) for clause in clauses if clause.binds)
    return [Judge(clause, kinds, model) for clause, model in models if model is not None]


def _followable(net: Net) -> bool:
    """Whether ending each call at once loses nothing, and the tokens are few."""
    silent = any(not t.tools for t in net.transitions)
    deferred = any(t.deferred for t in net.transitions)
    return not (silent and deferred) and sum(net.initial_marking.values()) <= 2 * len(net.places) + 8
