"""Rules about order as a graph: calls, and rules between them."""

from __future__ import annotations

from collections.abc import Iterable

from ..language.selectors import Selector
from ..rules.record import Fact, Link, Rule
from ..rules.wording import items_of, plain_names
from ..stack.clauses import Clause
from .marking import Marking
from .picture import Edge, GraphNode, Section


def order_section(clauses: Iterable[Clause], marking: Marking) -> Section | None:
    """The graph of all rules about order; None if there are none."""
    graph = _Graph(marking)
    for clause in clauses:
        if isinstance(clause.record, Rule):
            graph.add(clause, clause.record)
    return graph.section()


class _Graph:
    """Tools by what is written, and the rules between them."""

    def __init__(self, marking: Marking) -> None:
        self._marking = marking
        self._tools: dict[str, str] = {}
        self._plain: dict[str, str] = {}
        self._notes: dict[str, list[str]] = {}
        self._others: list[GraphNode] = []
        self._edges: list[Edge] = []

    def section(self) -> Section | None:
        """What was added."""
        tools = [
            GraphNode(
                id=id,
                text=text,
                shape="tool",
                notes=tuple(dict.fromkeys(self._notes.get(id, ()))),
                state=self._marking.of_tool(self._plain[id]) if id in self._plain else "",
            )
            for text, id in self._tools.items()
        ]
        nodes = (*tools, *self._others)
        return Section(title="order of calls", nodes=nodes, edges=tuple(self._edges)) if nodes else None

    def add(self, clause: Clause, rule: Rule) -> None:
        """What one rule shows of itself."""
        for drawn in rule.drawing():
            if isinstance(drawn, Link):
                self._link(clause, drawn)
            else:
                tool = self._tool(plain_names(drawn.tool), drawn.tool)
                self._notes.setdefault(tool, []).append(drawn.text)

    def _link(self, clause: Clause, link: Link) -> None:
        """A node for the rule, with arrows from what comes first and to what follows."""
        rule = self._pill(clause, link.word)
        for source in link.sources:
            for node in [self._fact(source)] if isinstance(source, Fact) else self._items(source):
                self._arrow(node, rule, clause)
        for node in self._items(link.target):
            self._arrow(rule, node, clause, forbidden=link.forbidden)

    def _pill(self, clause: Clause, word: str) -> str:
        id = f"r{len(self._others)}"
        named = clause.record.id if isinstance(clause.record, Rule) else None
        self._others.append(
            GraphNode(
                id=id,
                text=word,
                shape="rule",
                notes=(clause.id,) if named else (),
                state=self._marking.of_rule(clause.id, clause.patterns(*clause.roles.restricts)),
                action=clause.action,
            )
        )
        return id

    def _fact(self, fact: Fact) -> str:
        for node in self._others:
            if node.shape == "fact" and node.text == fact.text:
                return node.id
        node = GraphNode(id=f"f{len(self._others)}", text=fact.text, shape="fact")
        self._others.append(node)
        return node.id

    def _items(self, selector: Selector) -> list[str]:
        """A node for each item of a selector."""
        return [self._tool(plain_names(item), item) for item in items_of(selector)]

    def _tool(self, text: str, selector: Selector) -> str:
        id = self._tools.setdefault(text, f"t{len(self._tools)}")
        if isinstance(selector, str):
            self._plain[id] = selector
        return id

    def _arrow(self, source: str, target: str, clause: Clause, *, forbidden: bool = False) -> None:
        style = "forbidden" if forbidden else "plain" if clause.refuses else "weak"
        edge = Edge(source=source, target=target, style=style)  # type: ignore[arg-type]
        if edge not in self._edges:
            self._edges.append(edge)
