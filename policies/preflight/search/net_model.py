"""A net as a transition system over tuples: what a call does to a marking, with the meaning `rules.net` gives it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from ...language.selectors import VirtualName
from ...rules.nets.written import Net, Transition
from ...stack.clauses import Clause
from ..alphabet.call_classes import Kinds, Reach

Marking: TypeAlias = tuple[int, ...]
"""Tokens by place, in the order of the net's places."""


class View(NamedTuple):
    """A call under one of its names: whether it is free, and which transitions cover it, the first to fire first."""

    free: bool
    covering: tuple[int, ...]


Looks: TypeAlias = tuple[View, ...]
"""A call as a net sees it: under each of its names that the net knows."""


class NetState(NamedTuple):
    """A marking, and the deferred transitions that wait for their calls to end."""

    marking: Marking
    waiting: tuple[int, ...] = ()


class NetModel:
    """The net of one clause."""

    def __init__(self, clause: Clause, kinds: Kinds) -> None:
        net = clause.record
        assert isinstance(net, Net)
        self.net = net
        place = {name: n for n, name in enumerate(net.places)}
        self._inputs = [tuple(place[p] for p in t.inputs) for t in net.transitions]
        self._outputs = [tuple(place[p] for p in t.outputs) for t in net.transitions]
        self._capacity = [net.capacity.get(p) for p in net.places]
        self._silent = [n for n, t in enumerate(net.transitions) if not t.tools]
        order = sorted(range(len(net.transitions)), key=lambda n: net.transitions[n].type == "manual")
        self._covering = [
            (n, kinds.reaches(net.transitions[n].tools, clause)) for n in order if net.transitions[n].tools
        ]
        self._free = kinds.reaches(net.free_tools, clause)
        self._virtual = clause.scope.virtual_names
        self.tokens = sum(net.initial_marking.values()) + sum(net.capacity.values())
        self.weight = max((t.inputs.count(p) for t in net.transitions for p in t.inputs), default=1)

    @property
    def reaches(self) -> tuple[Reach, ...]:
        """What every selector of the net means."""
        return (*self._free, *(reach for _, reaches in self._covering for reach in reaches))

    def start(self) -> tuple[NetState, tuple[int, ...]]:
        """The initial marking, and what fired by itself."""
        marking = [self.net.initial_marking.get(place, 0) for place in self.net.places]
        fired = self._advance(marking)
        return NetState(tuple(marking)), fired

    def looks(self, name: str, facets: frozenset[object]) -> Looks:
        """How the net sees calls of a name whose input has these facets and no others."""
        names = (None, *(virtual for virtual in self._virtual if virtual in facets))
        views = (self._view(name, facets, virtual) for virtual in names)
        return tuple(view for view in views if view.covering and not view.free)

    def _view(self, name: str, facets: frozenset[object], virtual: VirtualName | None) -> View:
        def means(reaches: Sequence[Reach]) -> bool:
            return any(name in r.names and _under(r, virtual) and r.facets <= facets for r in reaches)

        return View(means(self._free), tuple(n for n, reaches in self._covering if means(reaches)))

    def firing(self, state: NetState, looks: Looks) -> tuple[int, ...] | None:
        """The transitions that such a call fires; None if it is blocked."""
        left = list(state.marking)
        firing: list[int] = []
        for view in looks:
            if any(n in view.covering for n in firing):
                continue
            chosen = next((n for n in view.covering if self.enabled(left, n)), None)
            if chosen is None:
                return None
            self._take(left, chosen)
            firing.append(chosen)
        return tuple(firing)

    def call(self, state: NetState, firing: Sequence[int]) -> tuple[NetState, tuple[int, ...]]:
        """The state once the call has started, and what else fired by itself."""
        marking, waiting = list(state.marking), list(state.waiting)
        for n in firing:
            self._take(marking, n)
            if self.net.transitions[n].deferred:
                waiting.append(n)
            else:
                self._give(marking, self._outputs[n])
        fired = self._advance(marking)
        return NetState(tuple(marking), tuple(sorted(waiting))), fired

    def end(self, state: NetState, n: int, *, failed: bool) -> tuple[NetState, tuple[int, ...]]:
        """The state once a call that deferred transition `n` waits for has ended, and what fired by itself."""
        marking, waiting = list(state.marking), list(state.waiting)
        waiting.remove(n)
        self._give(marking, self._inputs[n] if failed else self._outputs[n])
        fired = self._advance(marking)
        return NetState(tuple(marking), tuple(waiting)), fired

    def enabled(self, marking: Sequence[int], n: int) -> bool:
        """Whether a transition finds its tokens."""
        inputs = self._inputs[n]
        return all(marking[place] >= inputs.count(place) for place in inputs)

    def _take(self, marking: list[int], n: int) -> None:
        for place in self._inputs[n]:
            marking[place] -= 1

    def _give(self, marking: list[int], places: Sequence[int]) -> None:
        for place in places:
            capacity = self._capacity[place]
            marking[place] = marking[place] + 1 if capacity is None else min(marking[place] + 1, capacity)

    def _advance(self, marking: list[int]) -> tuple[int, ...]:
        """Fire what names no tool, while exactly one such transition is enabled."""
        fired: list[int] = []
        while self._silent:
            enabled = [n for n in self._silent if self.enabled(marking, n)]
            if len(enabled) != 1:
                break
            fired += enabled
            self._take(marking, enabled[0])
            self._give(marking, self._outputs[enabled[0]])
        return tuple(fired)

    def may_grow(self, gain: Marking) -> bool:
        """Whether no place that gains tokens has a capacity."""
        return all(not more or capacity is None for more, capacity in zip(gain, self._capacity, strict=True))

    def named(self, firing: Sequence[int]) -> Iterator[Transition]:
        """Transitions by their numbers."""
        return (self.net.transitions[n] for n in firing)


def _under(reach: Reach, virtual: VirtualName | None) -> bool:
    names = {facet for facet in reach.facets if isinstance(facet, VirtualName)}
    return names == ({virtual} if virtual is not None else set())
