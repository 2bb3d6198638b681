"""Tools that no clause denies and that the clauses together never let through, and required ones like them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..rules.after import Eventually
from ..rules.count import Count
from ..rules.require import Require
from .clauses import Clause, items_of
from .derivation import Node, Step, derivable, why_never
from .findings import PreflightFinding
from .kinds import Kind, Kinds
from .needs import Stated
from .net_needs import Enabled, Fired, Token


class Possible:
    """Which kinds of calls can ever be let through, conditions taken to be met by some input."""

    def __init__(self, stated: Stated, kinds: Kinds) -> None:
        self.stated = stated
        self.kinds = kinds
        self.found = derivable(stated.needs)
        self.calls = tuple(kind for kind in kinds.all if kind in self.found)

    def never(self, kind: Kind) -> list[Step]:
        """Why a kind is never let through, from need to need."""
        return why_never(kind, self.stated.needs, self.found)

    def words(self, steps: Iterable[Step]) -> tuple[str, ...]:
        """The steps in words."""
        return tuple(self._words(step) for step in steps)

    def _words(self, step: Step) -> str:
        rule = f"(`{step.clause.id}`)"
        if step.wanted is not None:
            return f"{self.named(step.node)} needs {self.named(step.wanted)} {rule}"
        if isinstance(step.node, Kind) and step.node in self.stated.barred:
            return f"{self.named(step.node)} is kept out {rule}"
        return f"{self.named(step.node)} needs what never comes {rule}"

    def named(self, node: Node) -> str:
        """A node in words."""
        match node:
            case Kind():
                return f"`{self.kinds.label(node)}`"
            case Token(_, place):
                return f"a token in `{place}`"
            case Enabled(_, transition) | Fired(_, transition):
                return f"transition `{transition}`"
        raise AssertionError(node)


def never_callable(possible: Possible) -> Iterator[PreflightFinding]:
    """Tools that could be called as far as any one clause goes, but not with all of them."""
    told: set[str] = set()
    for kind in possible.kinds.all:
        if kind in possible.found or kind in possible.stated.barred or not _is_tool(kind, possible):
            continue
        label = possible.kinds.label(kind)
        steps = possible.never(kind)
        if label in told or not steps:
            continue
        told.add(label)
        circle = any(step.wanted == kind for step in steps)
        yield PreflightFinding(
            code="never_callable",
            severity="refuse",
            message=f"`{label}` can never be called: {', and '.join(_bare(possible.words(steps)))}",
            policy=steps[0].clause.policy,
            rule=steps[0].clause.id,
            witness=possible.words(steps),
            suggestion="break the circle" if circle else f"allow what `{label}` needs, or deny it outright",
        )


def _bare(words: Iterable[str]) -> Iterator[str]:
    return (word.rsplit(" (", 1)[0] for word in words)


def _is_tool(kind: Kind, possible: Possible) -> bool:
    """Whether a kind is all calls of a name: a virtual name, or a plain one."""
    if not kind.facets:
        return True
    if any(isinstance(facet, bytes) for facet in kind.facets):
        return False
    return Kind(kind.name) in possible.found


def never_satisfied(clauses: Iterable[Clause], possible: Possible) -> Iterator[PreflightFinding]:
    """Rules that want a tool called which can never be called."""
    for clause in clauses:
        match clause.record:
            case (Require() | Eventually()) as wanting:
                wanted = wanting.tool
            case Count() as count if count.exact or (count.exact is None and count.min):
                wanted = count.tool
            case _:
                continue
        kinds = possible.kinds.of(wanted, clause)
        if not clause.binds or kinds & possible.found or not kinds:
            continue
        names = " or ".join(f"`{item if isinstance(item, str) else item.tool}`" for item in items_of(wanted))
        steps = possible.never(min(kinds, key=lambda kind: (len(kind.facets), kind.name)))
        yield PreflightFinding(
            code="never_satisfied",
            severity="refuse",
            message=f"{names} must be called and can never be: {', and '.join(_bare(possible.words(steps)))}",
            policy=clause.policy,
            rule=clause.id,
            witness=possible.words(steps),
            suggestion=f"take `{steps[-1].clause.id}` or `{clause.id}` away" if steps else "",
        )
