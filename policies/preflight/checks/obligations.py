"""Demands that can be met one by one and not in one run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ...rules.record import LARGEST
from ..alphabet.call_classes import CallClass
from ..findings import PreflightFinding, finding
from ..search.product import END, GaveUp, Product
from ..search.saturation import Saturation
from ..search.system import System


def demand_findings(possible: Saturation, systems: Sequence[System]) -> Iterator[PreflightFinding]:
    """The clauses that together leave no order of calls in which all is called that must be."""
    demands = [system for system in systems if system.graph.owes]
    concerned = [system for system in systems if system.graph.restrains or system.graph.owes]
    search = Product(concerned, possible.kinds, possible.found)
    guess = _one_after_another(demands, possible)
    if not possible.kinds.names.complete or search.goes([*guess, END]) or search.goes([*guess[::-1], END]):
        return
    try:
        core = search.core(END)
    except GaveUp:
        yield finding(
            "gave_up",
            (demands[0].clause.policy, ""),
            "there are too many orders of calls to tell whether one run can do all that must be done",
            witness=tuple(demand.clause.says() for demand in demands),
        )
        return
    if core is not None:
        clauses_in_words = tuple(clause.says() for clause in core)
        yield finding(
            "never_satisfied",
            core[0],
            f"no run can do all of this: {'; '.join(clauses_in_words)}",
            witness=clauses_in_words,
            suggestion=f"take {' or '.join(f'`{clause.id}`' for clause in core)} away",
        )


def _one_after_another(demands: Iterable[System], possible: Saturation) -> list[CallClass]:
    """The calls that meet each demand, with what they need before; a first guess."""
    calls: dict[CallClass, int] = {}
    for demand in demands:
        owed = demand.clause.record.owes()
        possible.kinds.work.spend(len(possible.found))
        wanted = [kind for kind in possible.found if demand.mask(*kind)]
        if wanted:
            kind = min(wanted, key=lambda kind: possible.found[kind])
            calls.update({other: 1 for other in possible.way_to(kind) if other not in calls})
            calls[kind] = max(calls[kind], min(owed.least, LARGEST) if owed is not None else 1)
    return [kind for kind, often in calls.items() for _ in range(often)]
