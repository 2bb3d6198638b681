"""Rules about order as a graph: calls, and rules between them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..language.selectors import Selector
from ..rules.after import After, Eventually
from ..rules.before import Before, ImmediatelyBefore
from ..rules.count import Count, MaxCalls
from ..rules.never_after import ForbidsAfter, NeverAfter
from ..rules.precondition import Precondition, Requirement
from ..rules.provenance import Provenance, Source
from ..rules.require import Require
from ..rules.sequence import ForbiddenSequence
from ..rules.sequence import Sequence as SequenceRule
from ..stack.clauses import Clause, items_of, restricted_by
from ..stack.wording import names
from .marking import Standing
from .picture import Edge, Node, Section

DRAWN = (
    After, Before, Count, Eventually, ForbiddenSequence, ForbidsAfter, ImmediatelyBefore, MaxCalls, NeverAfter,
    Precondition, Provenance, Require, SequenceRule,
)  # fmt: skip
"""The rules this section shows."""


def order_section(clauses: Iterable[Clause], standing: Standing) -> Section | None:
    """The graph of all rules about order; None if there are none."""
    graph = _Graph(standing)
    for clause in clauses:
        if isinstance(clause.record, DRAWN):
            graph.add(clause)
    return graph.section()


class _Graph:
    """Tools by what is written, and the rules between them."""

    def __init__(self, standing: Standing) -> None:
        self._standing = standing
        self._tools: dict[str, str] = {}
        self._plain: dict[str, str] = {}
        self._notes: dict[str, list[str]] = {}
        self._others: list[Node] = []
        self._edges: list[Edge] = []

    def section(self) -> Section | None:
        """What was added."""
        tools = [
            Node(
                id=id,
                text=text,
                shape="tool",
                notes=tuple(dict.fromkeys(self._notes.get(id, ()))),
                state=self._standing.of_tool(self._plain[id]) if id in self._plain else "",
            )
            for text, id in self._tools.items()
        ]
        nodes = (*tools, *self._others)
        return Section(title="order of calls", nodes=nodes, edges=tuple(self._edges)) if nodes else None

    def add(self, clause: Clause) -> None:
        """One rule."""
        match clause.record:
            case Before(first=first, then=then):
                self._rule(clause, "before", [first], then)
            case ImmediatelyBefore(first=first, then=then):
                self._rule(clause, "right before", [first], then)
            case After(trigger=trigger, then=then, within=within):
                self._rule(clause, "then next" if within == 1 else f"then within {within} calls", [trigger], then)
            case NeverAfter(trigger=trigger, forbidden=forbidden):
                self._rule(clause, "never after", [trigger], forbidden, forbidden=True)
            case ForbidsAfter(tool=trigger, tools=forbidden):
                self._rule(clause, "forbids", [trigger], forbidden, forbidden=True)
            case SequenceRule(tools=tools, strict=strict):
                self._chain(clause, "then next" if strict else "then", tools)
            case ForbiddenSequence(sequence=tools, adjacency=adjacency):
                self._chain(clause, "then next" if adjacency == "strict" else "then later", tools, forbidden=True)
            case Precondition(tool=tool, requires=requires):
                for requirement in requires:
                    self._requirement(clause, requirement, tool)
            case Provenance() as provenance:
                sources = [s.tool if isinstance(s, Source) else self._fact("user message") for s in provenance.from_]
                self._rule(clause, f"supplies {provenance.path}", sources, provenance.tool)
            case _:
                self._note(clause)

    def _note(self, clause: Clause) -> None:
        """A rule that speaks of a tool alone."""
        match clause.record:
            case MaxCalls(tool=tool, max=most):
                notes = [f"at most {most}"]
            case Count(tool=tool) as count:
                figures = (("exactly", count.exact), ("at least", count.min), ("at most", count.max))
                notes = [f"{word} {n}" for word, n in figures if n is not None]
            case Eventually(tool=tool, within=within):
                notes = [f"within the first {within} calls"]
            case Require(tool=tool):
                notes = ["required"]
            case _:
                return
        text = names(tool).replace("`", "")
        self._notes.setdefault(self._tool(text, tool), []).extend(notes)

    def _requirement(self, clause: Clause, requirement: Requirement, tool: Selector) -> None:
        inner = requirement.any_of if isinstance(requirement.any_of, Sequence) else (requirement,)
        word = "needs one of" if len(inner) > 1 else "needs"
        if any(each.same for each in inner):
            word += ", of the same"
        self._rule(clause, word, [source for each in inner for source in self._sources(each)], tool)

    def _sources(self, requirement: Requirement) -> Iterator[Any]:
        """What a requirement asks for: tools, or a fact."""
        if isinstance(requirement.any_of, Sequence):
            for inner in requirement.any_of:
                yield from self._sources(inner)
        elif isinstance(requirement.turns_gte, int):
            yield self._fact(f"{requirement.turns_gte} responses")
        elif isinstance(requirement.user_said, str):
            yield self._fact(f"user said /{requirement.user_said}/")
        else:
            yield requirement.prior

    def _rule(
        self, clause: Clause, word: str, sources: Sequence[Any], target: Selector, *, forbidden: bool = False
    ) -> None:
        """A node for the rule, with arrows from what comes first and to what follows."""
        rule = self._pill(clause, word)
        for source in sources:
            into = [source] if isinstance(source, Node) else self._items(source)
            for node in into:
                self._arrow(node.id if isinstance(node, Node) else node, rule, clause)
        for node in self._items(target):
            self._arrow(rule, node, clause, forbidden=forbidden)

    def _chain(self, clause: Clause, word: str, members: Sequence[Selector], *, forbidden: bool = False) -> None:
        if len(members) == 1:
            self._notes.setdefault(self._items(members[0])[0], []).append("never" if forbidden else "in order")
        for n, (first, then) in enumerate(itertools.pairwise(members)):
            last = n == len(members) - 2
            numbered = f"{word} ({n + 1}/{len(members) - 1})" if len(members) > 2 else word
            self._rule(clause, numbered, [first], then, forbidden=forbidden and last)

    def _pill(self, clause: Clause, word: str) -> str:
        plain = [
            name
            for selector in restricted_by(clause.record)
            for item in items_of(selector)
            for name in clause.scope.expand(item if isinstance(item, str) else item.tool)
        ]
        id = f"r{len(self._others)}"
        named = getattr(clause.record, "id", None)
        self._others.append(
            Node(
                id=id,
                text=word,
                shape="rule",
                notes=(clause.id,) if named else (),
                state=self._standing.of_rule(clause.id, plain),
                action=clause.action,
            )
        )
        return id

    def _fact(self, text: str) -> Node:
        for node in self._others:
            if node.shape == "fact" and node.text == text:
                return node
        node = Node(id=f"f{len(self._others)}", text=text, shape="fact")
        self._others.append(node)
        return node

    def _items(self, selector: Selector) -> list[str]:
        """A node for each item of a selector."""
        return [self._tool(names(item).replace("`", ""), item) for item in items_of(selector)]

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
