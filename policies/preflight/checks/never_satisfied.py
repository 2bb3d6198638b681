"""Rules that want a tool called which can never be called."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...rules.wording import names
from ...stack.clauses import Clause
from ..findings import PreflightFinding, finding
from ..search.saturation import Saturation, Step
from .never_callable import why, witness


def never_satisfied(clauses: Iterable[Clause], possible: Saturation) -> Iterator[PreflightFinding]:
    """The rules that owe a call of which none is possible."""
    for clause in clauses:
        owed = clause.record.owes()
        if owed is None or not clause.binds:
            continue
        kinds = possible.kinds.of(owed.tool, clause)
        if not kinds or kinds & possible.found.keys() or not possible.kinds.names.complete:
            continue
        when = "" if owed.after is None else f" after {names(owed.after)}"
        steps = possible.why_never(min(kinds, key=lambda kind: (len(kind.facets), kind.name)))
        yield finding(
            "never_satisfied",
            clause,
            f"{names(owed.tool)} must be called{when} and can never be: {why(possible, steps)}",
            witness=witness(possible, steps),
            suggestion=_ways_out(possible, steps, clause),
            severity="report" if when else "refuse",
        )


def _ways_out(possible: Saturation, steps: list[Step], wanting: Clause) -> str:
    """Which clauses stand in each other's way."""
    core = possible.cores.get(steps[-1].kind, [])
    ids = dict.fromkeys([*(clause.id for clause in core or [steps[-1].clause]), wanting.id])
    return f"take {' or '.join(f'`{id}`' for id in ids)} away"
