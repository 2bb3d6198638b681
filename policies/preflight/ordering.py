"""Tools that need nothing impossible and still fit in no order of calls."""

from __future__ import annotations

from collections.abc import Iterator

from .clauses import Clause
from .findings import PreflightFinding
from .kinds import Kind
from .order_search import MAX_STATES, GaveUp, Judge, OrderSearch
from .reachable import Possible

ROUNDS = 4
"""What one tool loses may cost another its order; so often is that followed up."""


def find_orders(possible: Possible, judges: list[Judge]) -> Iterator[PreflightFinding]:
    """Look for an order in which each kind of call is let through; those without one are excluded.

    Returns the kinds that could not be told, as findings.
    """
    if all(judge.lasting for judge in judges):
        return  # what is met once stays met: needs say it all
    gave_up: dict[str, Clause] = {}
    for _ in range(ROUNDS):
        search = OrderSearch(judges, possible.kinds, possible.found)
        cores = {}
        for kind, alike in _groups(possible, search):
            try:
                core = search.core(kind)
            except GaveUp:
                gave_up.setdefault(possible.kinds.label(kind), search.concerned(kind)[0].clause)
                continue
            if core is not None:
                cores.update(dict.fromkeys(alike, core))
        if not cores:
            break
        possible.exclude(cores)
    for label, clause in gave_up.items():
        yield PreflightFinding(
            code="gave_up",
            severity="report",
            message=f"whether `{label}` can be called was not found out within {MAX_STATES:,} states",
            policy=clause.policy,
            rule=clause.id,
        )


def _groups(possible: Possible, search: OrderSearch) -> Iterator[tuple[Kind, list[Kind]]]:
    """The kinds that some clause looks at, those together that every clause sees alike."""
    groups: dict[object, list[Kind]] = {}
    for kind in possible.kinds.all:
        if kind in possible.found and (sight := search.sight(kind)):
            groups.setdefault(sight, []).append(kind)
    for alike in groups.values():
        yield alike[0], alike
