"""A policy as a picture: the order of calls, the nets, and a session's state in them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from textwrap import wrap
from typing import Literal, TypeAlias

import msgspec

from .events.calls import STRICTNESS
from .language.selectors import Selector, items_of
from .monitor.monitor import Monitor
from .monitor.program import CompiledRule
from .policy import Policy
from .rules.petri_net import Net, NetState, Transition
from .rules.rule import Fact, Link, Rule, plain_names
from .stack.clauses import Clause, clauses_of
from .stack.merge import budget_in_words, checked_stack, effective_budgets, effective_limits
from .values.amounts import figure
from .values.globs import is_plain

NodeShape: TypeAlias = Literal["tool", "rule", "fact", "place", "transition"]
"""A tool's calls, a rule between them, a condition other than a call; a net's places and transitions."""

NodeState: TypeAlias = Literal["", "open", "shut", "violated"]
"""The state in a session: `open` is allowed now, satisfied or enabled; `shut` is denied, or still denies."""

_INDENT = "\u00a0" * 4
"""Blanks that no renderer collapses."""


class GraphNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One node of a section; `notes` are drawn below its text, `tokens` in a place."""

    id: str
    text: str
    shape: NodeShape
    notes: tuple[str, ...] = ()
    tokens: int = 0
    state: NodeState = ""
    action: str = ""


class Edge(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One arrow; a forbidden one leads to a call that must not follow, a weak one only warns or asks."""

    source: str
    target: str
    style: Literal["plain", "forbidden", "weak"] = "plain"
    label: str = ""


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A graph with a title; ids are its own."""

    title: str
    nodes: tuple[GraphNode, ...]
    edges: tuple[Edge, ...]
    action: str = ""


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """The graphs of a policy, and its other parts as lines of text.

    Attributes:
        title: The name of what is drawn.
        sections: The graphs.
        lines: The parts of the policy that are not drawn as a graph, line by line.
        standing: Whether it shows a session's state, not only the policy.
    """

    title: str
    sections: tuple[Section, ...]
    lines: tuple[str, ...] = ()
    standing: bool = False

    def folded(self, width: int) -> list[str]:
        """The lines, wrapped at `width`, with continuation lines indented."""
        return [part for line in self.lines for part in wrap(line, width, subsequent_indent=_INDENT) or [""]]


class Marking:
    """A monitor's view of tools, rules and nets; without a monitor, nothing."""

    def __init__(self, monitor: Monitor | None) -> None:
        self._monitor = monitor
        self._rules: dict[str, CompiledRule] = {}
        self._violated: frozenset[str] = frozenset()
        if monitor is not None:
            self._rules = {rule.id: rule for rule in monitor.state.rules.values()}
            report = monitor.report()
            self._violated = frozenset(id for id, rule in report.rules.items() if rule.status == "violated")

    def __bool__(self) -> bool:
        return self._monitor is not None

    def of_tool(self, name: str) -> NodeState:
        """Whether a tool could be called now."""
        if self._monitor is None or not is_plain(name):
            return ""
        return "open" if self._monitor.narrow([name]) else "shut"

    def of_rule(self, id: str, restricted: Iterable[str]) -> NodeState:
        """Whether a rule was violated, would deny one of these tools now, or is satisfied."""
        rule = self._rules.get(id)
        if self._monitor is None or rule is None:
            return ""
        if id in self._violated:
            return "violated"
        if STRICTNESS[rule.action] < STRICTNESS["deny"]:
            return ""  # it never keeps a call out
        denied = any(id in self._monitor.denying(name) for name in restricted if is_plain(name))
        return "shut" if denied else "open"

    def marking(self, id: str) -> Mapping[str, int] | None:
        """The tokens of a net; None if unknown."""
        rule = self._rules.get(id)
        if self._monitor is None or rule is None:
            return None
        state = self._monitor.state.states[rule.number]
        return state.marking if isinstance(state, NetState) else None


def net_section(clause: Clause, shown: Marking) -> Section:
    """The graph of one net, with its current or initial marking."""
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


def order_section(clauses: Iterable[Clause], marking: Marking) -> Section | None:
    """The graph of all rules about order; None if there are none."""
    graph = _Graph(marking)
    for clause in clauses:
        graph.add(clause)
    return graph.section()


class _Graph:
    """Tools as the policy writes them, and the rules between them."""

    def __init__(self, marking: Marking) -> None:
        self._marking = marking
        self._tools: dict[str, str] = {}
        self._plain: dict[str, str] = {}
        self._notes: dict[str, list[str]] = {}
        self._others: list[GraphNode] = []
        self._edges: list[Edge] = []

    def section(self) -> Section | None:
        """Everything added so far as one section; None if there is nothing."""
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

    def add(self, clause: Clause) -> None:
        for drawn in clause.profile.drawing:
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
                state=self._marking.of_rule(clause.id, clause.patterns(*clause.profile.restricts)),
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
        style = "forbidden" if forbidden else "plain" if clause.denies else "weak"
        edge = Edge(source=source, target=target, style=style)  # type: ignore[arg-type]
        if edge not in self._edges:
            self._edges.append(edge)


def draw(policy: Policy, monitor: Monitor | None = None, session: Section | None = None) -> Picture:
    """The picture of a policy.

    Args:
        policy: the stack.
        monitor: marks the state of this monitor's session.
        session: a section that is drawn first, for example the session that a proof found.

    Raises:
        PolicyError: the policy is wrong in itself.
    """
    stack = checked_stack(policy)
    clauses = clauses_of(stack)
    marking = Marking(monitor)
    order = order_section(clauses, marking)
    first = (each for each in (session, order) if each is not None)
    nets = (net_section(clause, marking) for clause in clauses if isinstance(clause.record, Net))
    return Picture(
        title=stack.name, sections=(*first, *nets), lines=tuple(_lines(stack, clauses)), standing=bool(marking)
    )


def _lines(stack: Policy, clauses: Iterable[Clause]) -> Iterator[str]:
    """The parts written in words: the limits, the budgets, the lists, and rules without an order."""
    for entry in effective_limits(stack):
        yield f"{entry.name}: {figure(entry.limit.max)} ({entry.action})"
    for budget in effective_budgets(stack):
        yield budget_in_words(budget)
    for clause in clauses:
        if not clause.profile.drawing and not isinstance(clause.record, Net):
            yield f"{clause.words()} ({clause.action})".replace("`", "")


SHAPES = {
    "tool": ('["', '"]'),
    "rule": ('(["', '"])'),
    "fact": ('>"', '"]'),
    "place": ('(("', '"))'),
    "transition": ('["', '"]'),
}

WIDEST = 120
"""The width at which a line of text is wrapped."""

ARROWS = {"plain": "-->", "forbidden": "--x", "weak": "-.->"}

STYLES = {
    "tool": "fill:#eef2f7,stroke:#475569,color:#0f172a",
    "rule": "fill:#ffffff,stroke:#94a3b8,color:#334155",
    "fact": "fill:#faf5ff,stroke:#7e22ce,color:#3b0764",
    "place": "fill:#ffffff,stroke:#334155,color:#0f172a",
    "transition": "fill:#334155,stroke:#0f172a,color:#ffffff",
    "open": "stroke:#15803d,stroke-width:3px",
    "shut": "stroke:#b45309,stroke-width:3px,stroke-dasharray:4 3",
    "violated": "fill:#fee2e2,stroke:#b91c1c,stroke-width:3px,color:#7f1d1d",
    "note": "fill:#f8fafc,stroke:#cbd5e1,color:#334155,text-align:left",
}

UNSAFE = {
    '"': "#quot;",
    "#": "#35;",
    "&": "#amp;",
    "<": "#lt;",
    ">": "#gt;",
    "`": "#96;",
    "\\": "#92;",
    "\n": " ",
    "\r": " ",
}
"""Characters that Mermaid or HTML would interpret, with their escapes."""

MANY = 6
"""A place with at least this many tokens shows their number."""


def draw_mermaid(policy: Policy, monitor: Monitor | None = None, session: Section | None = None) -> str:
    """A policy as a Mermaid flowchart.

    Args:
        policy: the stack.
        monitor: marks the state of this monitor's session.
        session: a section that is drawn first, for example the session that a proof found.

    Raises:
        PolicyError: the policy is wrong in itself.
    """
    return "\n".join(_written(draw(policy, monitor, session))) + "\n"


def _written(picture: Picture) -> Iterator[str]:
    yield "flowchart LR"
    for n, section in enumerate(picture.sections):
        yield f'  subgraph s{n}["{_text(section.title)}"]'
        yield "    direction LR"
        yield from (f"    {line}" for line in _section(section, f"s{n}"))
        yield "  end"
    if picture.lines:
        words = "<br/>".join(map(_text, picture.folded(WIDEST)))
        yield f'  lines["{words}"]:::note'
    used = {name for section in picture.sections for node in section.nodes for name in (node.shape, node.state)}
    for name, style in STYLES.items():
        if name in used or (name == "note" and picture.lines):
            yield f"  classDef {name} {style}"


def _section(section: Section, prefix: str) -> Iterator[str]:
    for node in section.nodes:
        yield _node(node, prefix)
    for edge in section.edges:
        yield _edge(edge, prefix)
    for node in section.nodes:
        if node.state:
            yield f"class {prefix}{node.id} {node.state}"


def _node(node: GraphNode, prefix: str) -> str:
    before, after = SHAPES[node.shape]
    rows = [_text(node.text), *(f"<small>{_text(note)}</small>" for note in node.notes)]
    if node.shape == "place":
        rows.insert(0, tokens(node.tokens) or " ")
    if node.shape == "rule" and node.action not in ("", "cancel"):
        rows.append(f"<small>{_text(node.action)}</small>")
    return f"{prefix}{node.id}{before}{'<br/>'.join(rows)}{after}:::{node.shape}"


def tokens(count: int) -> str:
    """Tokens as text: dots, or their number if they are many."""
    return "\u25cf" * count if count < MANY else f"\u25cf {count}"


def _edge(edge: Edge, prefix: str) -> str:
    label = f'|"{_text(edge.label)}"|' if edge.label else ""
    return f"{prefix}{edge.source} {ARROWS[edge.style]}{label} {prefix}{edge.target}"


def _text(text: str) -> str:
    """Text for quotes: characters that Mermaid or HTML would interpret as entities."""
    return "".join(UNSAFE.get(char, char) for char in text)
