"""Tools that need nothing impossible and still fit in no order of calls."""

from __future__ import annotations

from collections.abc import Iterator

from ...stack.clauses import Clause
from ..alphabet.call_classes import CallClass
from ..findings import PreflightFinding, finding
from ..search.product import GaveUp, Product
from ..search.saturation import Saturation
from ..search.system import System


def find_orders(possible: Saturation, systems: list[System]) -> Iterator[PreflightFinding]:
    """Look for an order in which each kind of call is let through; those without one are excluded.

    Returns what could not be told, as a finding.
    """
    systems = [system for system in systems if system.graph.restrains]
    if all(system.graph.lasting for system in systems):
        return  # what is met once stays met: each clause by itself says it all
    settled: set[CallClass] = set()
    gave_up: list[CallClass] = []
    work = 0
    while True:
        search = Product(systems, possible.kinds, possible.found, work)
        cores = _first_without_order(possible, search, settled, gave_up)
        work = search.work
        if not cores:
            break
        possible.exclude(cores)
    if gave_up:
        labels = tuple(dict.fromkeys(possible.kinds.label(kind) for kind in gave_up))
        yield finding(
            "gave_up",
            (search.concerned(gave_up[0])[0].clause.policy, ""),
            "there are too many orders of calls to tell whether these can ever be called: "
            + ", ".join(f"`{label}`" for label in labels),
            witness=labels,
        )


def _first_without_order(
    possible: Saturation, search: Product, settled: set[CallClass], gave_up: list[CallClass]
) -> dict[CallClass, list[Clause]]:
    """Kinds that come in no order, with the clauses that leave none; what others need is looked at first."""
    for alike in _unproven(possible, search, settled):
        settled.update(alike)
        try:
            core = search.core(alike[0])
        except GaveUp:
            gave_up.append(alike[0])
            continue
        if core is not None:
            return dict.fromkeys(alike, core)
    return {}


def _unproven(possible: Saturation, search: Product, settled: set[CallClass]) -> list[list[CallClass]]:
    """The kinds that calling only what they need does not reach; those that every clause sees alike are together."""
    groups: dict[object, list[CallClass]] = {}
    for kind in possible.found:
        if search.concerned(kind):
            groups.setdefault(search.sight(kind), []).append(kind)
    unproven = []
    for alike in sorted(groups.values(), key=lambda group: -possible.found[group[0]]):
        if settled.intersection(alike):
            continue
        way = possible.way_to(alike[0])
        possible.kinds.work.spend(len(way))
        if search.goes(way):
            settled.update(way)
        else:
            unproven.append(alike)
    return unproven[::-1]
