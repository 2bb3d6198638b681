"""A net as a graph: places with their tokens, transitions with their tools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ..rules.nets.written import Net, Transition
from ..rules.wording import plain_names
from ..stack.clauses import Clause
from .marking import Marking
from .picture import Edge, GraphNode, NodeState, Section


def net_section(clause: Clause, shown: Marking) -> Section:
    """The graph of one net, marked as it is now, or as it begins."""
    net = clause.record
    assert isinstance(net, Net)
    now = shown.marking(clause.id)
    marking = net.initial_marking if now is None else now
    places = {name: f"p{n}" for n, name in enumerate(net.places)}
    nodes = [_place(net, name, id, marking) for name, id in places.items()]
    edges: list[Edge] = []
    for n, transition in enumerate(net.transitions):
        state: NodeState = "" if now is None else "open" if transition.enabled(marking) else "shut"
        nodes.append(_transition(f"x{n}", transition, state))
        edges += [_arc(places[place], f"x{n}", times) for place, times in Counter(transition.inputs).items()]
        edges += [_arc(f"x{n}", places[place], times) for place, times in Counter(transition.outputs).items()]
    free = (f"{plain_names(net.free_tools)} free",) if net.free_tools else ()
    title = " - ".join((f"net {net.name}", *free))
    return Section(title=title, nodes=tuple(nodes), edges=tuple(edges), action=clause.action)


def _place(net: Net, name: str, id: str, marking: Mapping[str, int]) -> GraphNode:
    notes = [f"at most {net.capacity[name]}"] if name in net.capacity else []
    notes += ["end"] if name in net.terminal_places else []
    return GraphNode(id=id, text=name, shape="place", tokens=marking.get(name, 0), notes=tuple(notes))


def _transition(id: str, transition: Transition, state: NodeState) -> GraphNode:
    tools = plain_names(transition.tools) if transition.tools else "by itself"
    notes = ["a person approves"] if transition.type == "manual" else []
    notes += ["once completed"] if transition.deferred else []
    return GraphNode(id=id, text=tools, shape="transition", notes=(transition.name, *notes), state=state)


def _arc(source: str, target: str, times: int) -> Edge:
    return Edge(source=source, target=target, label=f"x{times}" if times > 1 else "")
