"""Tools that no clause denies and that the clauses together never let through, and required ones like them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...rules.after import After, Eventually
from ...rules.count import Count
from ...rules.require import Require
from ...stack.clauses import Clause
from ...stack.wording import names, says
from ..alphabet.call_classes import Kind, Kinds
from ..alphabet.names import ANY_OTHER
from ..findings import PreflightFinding
from .derivation import Need, Node, Step, derivable, why_never
from .needs import Stated
from .net_needs import Enabled, Fired, Token


class Possible:
    """Which kinds of calls can ever be let through, conditions taken to be met by some input.

    `cores` holds the clauses that together leave no order in which a kind could come.
    """

    def __init__(self, stated: Stated, kinds: Kinds) -> None:
        self.stated = stated
        self.kinds = kinds
        self.cores: dict[Kind, list[Clause]] = {}
        self.found = derivable(stated.needs)

    @property
    def calls(self) -> tuple[Kind, ...]:
        """The kinds that can be let through."""
        return tuple(kind for kind in self.kinds.all if kind in self.found)

    def exclude(self, cores: dict[Kind, list[Clause]]) -> None:
        """Take in that some kinds can come in no order, and so what needs them neither."""
        self.cores |= cores
        for kind, core in cores.items():
            self.stated.needs[kind].append(Need(frozenset(), core[0]))
        self.found = derivable(self.stated.needs)

    def steps(self, kind: Kind) -> list[Step]:
        """Why a kind is never let through: from one kind of call to the next."""
        steps = why_never(kind, self.stated.needs, self.found)
        calls = [n for n, step in enumerate(steps) if isinstance(step.node, Kind)]
        short = []
        for here, there in zip(calls, [*calls[1:], len(steps)], strict=True):
            last = steps[there - 1]
            short.append(Step(steps[here].node, steps[here].clause, last.wanted if last.wanted else last.node))
        if short and isinstance(steps[-1].node, Kind) and steps[-1].wanted is None:
            short[-1] = steps[-1]
        return short

    def words(self, step: Step) -> str:
        """A step in words."""
        node = step.node
        assert isinstance(node, Kind)
        name = f"`{self.kinds.label(node)}`"
        if step.wanted is not None:
            return f"{name} needs {self._named(step.wanted)}"
        if node in self.cores:
            return f"{name} fits in no order of calls"
        return f"{name} is kept out" if node in self.stated.barred else f"{name} needs what there is not"

    def _named(self, node: Node) -> str:
        match node:
            case Kind():
                return f"`{self.kinds.label(node)}`"
            case Token():
                return f"a token in `{node.place}`, where none ever comes"
            case Enabled() | Fired():
                return f"transition `{node.transition}`, which never fires"
        raise AssertionError(node)

    def witness(self, steps: Iterable[Step]) -> tuple[str, ...]:
        """The steps in words, each with the rule behind it; an impossible order by its rules."""
        found: list[str] = []
        for step in steps:
            core = self.cores.get(step.node) if isinstance(step.node, Kind) and step.wanted is None else None
            found += map(says, core) if core else [f"{self.words(step)} (`{step.clause.id}`)"]
        return tuple(found)


def never_callable(possible: Possible) -> Iterator[PreflightFinding]:
    """Tools that could be called as far as any one clause goes, but not with all of them."""
    told: set[str] = set()
    for kind in possible.kinds.all:
        if kind in possible.found or kind in possible.stated.barred or not _is_tool(kind, possible):
            continue
        label = possible.kinds.label(kind)
        if told and label == ANY_OTHER:
            continue  # shut out with the others
        steps = possible.steps(kind)
        circle = [step.node for step in steps] if steps and steps[-1].wanted == kind else []
        if label in told or not steps:
            continue
        told.update([label, *(possible.kinds.label(node) for node in circle if isinstance(node, Kind))])
        core = possible.cores.get(kind)
        yield PreflightFinding(
            code="never_callable",
            severity="refuse",
            message=f"`{label}` can never be called: {_why(possible, steps)}",
            policy=steps[0].clause.policy,
            rule=steps[0].clause.id,
            witness=possible.witness(steps),
            suggestion=_advice(label, bool(circle), core),
        )


def _why(possible: Possible, steps: list[Step]) -> str:
    last = steps[-1].node
    core = possible.cores.get(last) if isinstance(last, Kind) and steps[-1].wanted is None else None
    words = [possible.words(step) for step in steps]
    if len(words) > 4:
        words = [*words[:2], "so on", words[-1]]
    return ", and ".join(words) + (f" ({'; '.join(map(says, core))})" if core else "")


def _advice(label: str, circle: bool, core: list[Clause] | None) -> str:
    if circle:
        return "break the circle"
    if core:
        return f"loosen {' or '.join(f'`{clause.id}`' for clause in core)}"
    return f"allow what `{label}` needs, or deny it outright"


def _is_tool(kind: Kind, possible: Possible) -> bool:
    """Whether a kind is all calls of a name: a virtual name, or a plain one."""
    if not kind.facets:
        return True
    if any(isinstance(facet, bytes) for facet in kind.facets):
        return False
    return Kind(kind.name) in possible.found


def _ways_out(possible: Possible, steps: list[Step], wanting: Clause) -> str:
    """Which clauses stand in each other's way."""
    if not steps:
        return ""
    last = steps[-1].node
    core = possible.cores.get(last, []) if isinstance(last, Kind) else []
    ids = dict.fromkeys([*(clause.id for clause in core or [steps[-1].clause]), wanting.id])
    return f"take {' or '.join(f'`{id}`' for id in ids)} away"


def never_satisfied(clauses: Iterable[Clause], possible: Possible) -> Iterator[PreflightFinding]:
    """Rules that want a tool called which can never be called."""
    for clause in clauses:
        match clause.record:
            case (Require() | Eventually()) as wanting:
                wanted = wanting.tool
            case After(then=wanted):
                pass
            case Count() as count if count.exact or (count.exact is None and count.min):
                wanted = count.tool
            case _:
                continue
        kinds = possible.kinds.of(wanted, clause)
        if not clause.binds or kinds & possible.found.keys() or not kinds or not possible.kinds.names.complete:
            continue
        when = f" after {names(clause.record.trigger)}" if isinstance(clause.record, After) else ""
        steps = possible.steps(min(kinds, key=lambda kind: (len(kind.facets), kind.name)))
        yield PreflightFinding(
            code="never_satisfied",
            severity="report" if when else "refuse",
            message=f"{names(wanted)} must be called{when} and can never be: {_why(possible, steps)}",
            policy=clause.policy,
            rule=clause.id,
            witness=possible.witness(steps),
            suggestion=_ways_out(possible, steps, clause),
        )
