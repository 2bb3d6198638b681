"""What a net asks of each kind of call: a transition that covers it, and the tokens that one takes.

Tokens are taken to stay once they were there: what cannot come about even so never does.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ...language.selectors import VirtualName
from ...rules.nets.written import Net, Transition
from ...stack.clauses import Clause
from ..alphabet.call_classes import Kind, Kinds, Reach
from .derivation import Need, Node


class Token(msgspec.Struct, frozen=True):
    """A token in a place of a net."""

    net: str
    place: str


class Enabled(msgspec.Struct, frozen=True):
    """A transition that finds its tokens."""

    net: str
    transition: str


class Fired(msgspec.Struct, frozen=True):
    """A transition that has fired."""

    net: str
    transition: str


def net_needs(clause: Clause, kinds: Kinds) -> Iterator[tuple[Node, Need | None]]:
    """Nodes, each with one thing it needs; None for one that needs nothing more."""
    net = clause.record
    assert isinstance(net, Net)
    yield from _of_tokens(net, clause, kinds)
    covering = [(t, kinds.reaches(t.tools, clause)) for t in net.transitions if t.tools]
    free = kinds.reaches(net.free_tools, clause)
    for kind in kinds.all:
        for virtual in (None, *(facet for facet in kind.facets if isinstance(facet, VirtualName))):
            if _means(free, kind, virtual):
                continue
            if any(_means(reaches, kind, virtual, surely=True) for _, reaches in covering):
                admitting = (t for t, reaches in covering if _means(reaches, kind, virtual) and not _barred(net, t))
                yield kind, Need(frozenset(Enabled(clause.id, t.name) for t in admitting), clause)


def _barred(net: Net, transition: Transition) -> bool:
    """Whether a place it takes from has no token and is never given one."""
    given = {place for t in net.transitions for place in t.outputs}
    return any(not net.initial_marking.get(place) and place not in given for place in transition.inputs)


def _of_tokens(net: Net, clause: Clause, kinds: Kinds) -> Iterator[tuple[Node, Need | None]]:
    for transition in net.transitions:
        enabled, fired = Enabled(clause.id, transition.name), Fired(clause.id, transition.name)
        yield enabled, None
        for place in dict.fromkeys(transition.inputs):
            yield enabled, Need(frozenset({Token(clause.id, place)}), clause)
        yield fired, Need(frozenset({enabled}), clause)
        if transition.tools:
            yield fired, Need(frozenset(kinds.of(transition.tools, clause)), clause)
    for place in net.places:
        token = Token(clause.id, place)
        yield token, None
        if not net.initial_marking.get(place):
            sources = (t.name for t in net.transitions if place in t.outputs)
            yield token, Need(frozenset(Fired(clause.id, name) for name in sources), clause)


def _means(reaches: tuple[Reach, ...], kind: Kind, virtual: VirtualName | None, *, surely: bool = False) -> bool:
    """Whether some call of the kind (`surely`: every call) is meant, under its own or under a virtual name."""
    for reach in reaches:
        names = {facet for facet in reach.facets if isinstance(facet, VirtualName)}
        if kind.name not in reach.names or names != ({virtual} if virtual else set()):
            continue
        if not surely or reach.facets <= kind.facets:
            return True
    return False
