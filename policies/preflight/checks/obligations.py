"""Demands that can be met one by one and not in one run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ...stack.clauses import Clause
from ...stack.wording import says
from ..alphabet.call_classes import Kind
from ..findings import PreflightFinding
from ..search.derivation import way_to
from ..search.order_judges import END, Judge, demands_of
from ..search.order_search import GaveUp, OrderSearch
from ..search.reachable import Possible


def demand_findings(
    clauses: Iterable[Clause], possible: Possible, judges: Sequence[Judge]
) -> Iterator[PreflightFinding]:
    """The clauses that together leave no order of calls in which all is called that must be."""
    demands = demands_of(clauses, possible.kinds)
    search = OrderSearch([*judges, *demands], possible.kinds, possible.found)
    guess = _one_after_another(demands, possible)
    if not possible.kinds.names.complete or search.goes([*guess, END]) or search.goes([*guess[::-1], END]):
        return
    try:
        core = search.core(END)
    except GaveUp:
        yield PreflightFinding(
            code="gave_up",
            severity="report",
            message="there are too many orders of calls to tell whether one run can do all that must be done",
            policy=demands[0].clause.policy,
            witness=tuple(says(demand.clause) for demand in demands),
        )
        return
    if core is not None:
        core = list({clause.id: clause for clause in core}.values())  # one clause may demand and refuse
        yield PreflightFinding(
            code="never_satisfied",
            severity="refuse",
            message=f"no run can do all of this: {'; '.join(map(says, core))}",
            policy=core[0].policy,
            rule=core[0].id,
            witness=tuple(map(says, core)),
            suggestion=f"take {' or '.join(f'`{clause.id}`' for clause in core)} away",
        )


def _one_after_another(demands: Iterable[Judge], possible: Possible) -> list[Kind]:
    """The calls that meet each demand, with what they need before; a first guess."""
    calls: dict[Kind, int] = {}
    for demand in demands:
        wanted = [kind for kind in possible.calls if demand.look(kind.name, kind.facets)]
        if wanted:
            kind = min(wanted, key=lambda kind: possible.found[kind])
            way = way_to(kind, possible.stated.needs, possible.found)
            calls.update({node: 1 for node in way if isinstance(node, Kind) and node not in calls})
            calls[kind] = max(calls[kind], getattr(demand.model, "least", 1))
    return [kind for kind, often in calls.items() for _ in range(often)]
