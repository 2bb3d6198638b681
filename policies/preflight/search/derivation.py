"""The least fixed point of needs: what can come about, and a shortest reason why the rest never does."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from ...stack.clauses import Clause

Node: TypeAlias = Hashable
"""Something that may come about: a kind of call, a token in a place, a transition."""


class Need(NamedTuple):
    """One of these must come about before; `clause` says so. With none of them it never does."""

    alternatives: frozenset[Node]
    clause: Clause


Needs: TypeAlias = Mapping[Node, Sequence[Need]]


def derivable(needs: Needs) -> dict[Node, int]:
    """The nodes that can come about, with their rank: one alternative of every need has a lower one."""
    open_needs = {node: len(given) for node, given in needs.items()}
    waiting: dict[Node, list[tuple[Node, int]]] = {}
    for node, given in needs.items():
        for n, need in enumerate(given):
            for alternative in need.alternatives:
                waiting.setdefault(alternative, []).append((node, n))
    ready = [node for node, count in open_needs.items() if not count]
    found = {node: rank for rank, node in enumerate(ready)}
    met: set[tuple[Node, int]] = set()
    while ready:
        for waiter in waiting.get(ready.pop(0), ()):
            if waiter in met:
                continue
            met.add(waiter)
            node = waiter[0]
            open_needs[node] -= 1
            if not open_needs[node]:
                found[node] = len(found)
                ready.append(node)
    return found


def way_to(node: Node, needs: Needs, found: Mapping[Node, int]) -> list[Node]:
    """What comes about on one way to a node, in order, the node last."""
    way: dict[Node, None] = {}
    stack: list[tuple[Node, bool]] = [(node, False)]
    while stack:
        at, needed = stack.pop()
        if needed:
            way[at] = None
        elif at not in way:
            stack.append((at, True))
            first = [min(need.alternatives, key=lambda n: found.get(n, len(found))) for need in needs[at]]
            stack += [(other, False) for other in reversed(first)]
    return list(way)


class Step(NamedTuple):
    """`node` never comes about, for `clause` wants `wanted` first; None: it wants what there is not."""

    node: Node
    clause: Clause
    wanted: Node | None


def why_never(node: Node, needs: Needs, found: Iterable[Node]) -> list[Step]:
    """A shortest chain of needs from a node to one that nothing can meet; if all go round, to one in the chain."""
    possible = set(found)
    chains: list[tuple[Node, list[Step]]] = [(node, [])]
    seen = {node}
    for at, chain in chains:
        for need in needs.get(at, ()):
            if need.alternatives & possible:
                continue
            if not need.alternatives:
                return [*chain, Step(at, need.clause, None)]
            for wanted in sorted(need.alternatives, key=repr):
                if wanted not in seen:
                    seen.add(wanted)
                    chains.append((wanted, [*chain, Step(at, need.clause, wanted)]))
    return _round(node, needs, possible)


def _round(node: Node, needs: Needs, possible: set[Node]) -> list[Step]:
    """Steps from a node that lead into a circle, where no need is without alternatives."""
    steps: dict[Node, Step] = {}
    while node not in steps:
        need = next(need for need in needs[node] if not need.alternatives & possible)
        steps[node] = Step(node, need.clause, min(need.alternatives, key=repr))
        node = steps[node].wanted
    return list(steps.values())
