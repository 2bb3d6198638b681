"""Calls that must come more often than they may."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ...policy import Policy
from ...rules.record import Of, Owed
from ...rules.wording import names, times
from ...stack.clauses import Clause
from ...stack.limits import effective_limits
from ...stream.calls import STRICTNESS
from ..alphabet.call_classes import CallClass, Kinds
from ..findings import PreflightFinding, finding
from ..search.saturation import Saturation

COVERS: dict[Of, tuple[Of, ...]] = {
    "started": ("started", "completed"),
    "completed": ("completed",),
    "attempted": ("started", "completed"),
}
"""What a cap on calls in one state keeps down; refused attempts are attempts all the same."""


class Want(NamedTuple):
    """What a clause owes, and the kinds of calls that may serve it."""

    clause: Clause
    owed: Owed
    kinds: frozenset[CallClass]


class Quota(NamedTuple):
    """Of these kinds no more calls are let through; `says` in words. `lasting` unless another run lifts it."""

    id: str
    says: str
    most: int
    of: Of
    kinds: frozenset[CallClass]
    lasting: bool = True


def quota_findings(policy: Policy, clauses: Sequence[Clause], possible: Saturation) -> Iterator[PreflightFinding]:
    """The demands that the caps of the stack leave no room for, each with the first cap that does not."""
    kinds = possible.kinds
    if not kinds.names.complete:
        return
    wants = list(_wants(clauses, possible))
    reported: set[str] = set()
    for quota in (*_quotas(clauses, kinds), *_limits(policy, kinds)):
        possible.kinds.work.spend(1 + sum(min(len(w.kinds), len(quota.kinds)) for w in wants))
        kept = [want for want in wants if want.owed.of in COVERS[quota.of] and want.kinds <= quota.kinds]
        crowd = _crowd([want for want in kept if want.clause.id not in reported], quota.most)
        if crowd:
            reported.update(want.clause.id for want in crowd)
            yield _finding(crowd, quota)


def _crowd(wants: list[Want], most: int) -> list[Want]:
    """One demand beyond the cap, or several that exceed it together because no call serves two of them."""
    chosen: list[Want] = []
    for want in sorted(wants, key=lambda want: -want.owed.least):
        if all(want.kinds.isdisjoint(other.kinds) for other in chosen):
            chosen.append(want)
            if sum(each.owed.least for each in chosen) > most:
                return chosen
    return []


def _finding(crowd: list[Want], quota: Quota) -> PreflightFinding:
    wanted = " and ".join(f"{names(want.owed.tool)} must be called {_often(want.owed.least)}" for want in crowd)
    they = ", and together they" if len(crowd) > 1 else " and"
    of_run = "" if quota.lasting else " in one run"
    return finding(
        "never_satisfied",
        crowd[0].clause,
        f"{wanted}{they} may be called at most {times(quota.most)}{of_run} ({quota.says})",
        witness=(*(want.clause.says() for want in crowd), quota.says),
        suggestion=f"raise `{quota.id}`, or ask for less",
        severity="refuse" if quota.lasting else "report",
    )


def _often(least: int) -> str:
    return times(least) if least > 1 else "at least once"


def _wants(clauses: Iterable[Clause], possible: Saturation) -> Iterator[Want]:
    for clause in clauses:
        owed = clause.record.owes()
        if owed is not None and owed.after is None and clause.binds:
            reached = {name for reach in possible.kinds.reaches(owed.tool, clause.scope) for name in reach.names}
            possible.kinds.work.spend(len(possible.found))
            if meant := frozenset(kind for kind in possible.found if kind.name in reached):
                yield Want(clause, owed, meant)


def _quotas(clauses: Iterable[Clause], kinds: Kinds) -> Iterator[Quota]:
    for clause in clauses:
        if not clause.binds or getattr(clause.record, "key", None) is not None:
            continue
        for cap in clause.record.caps():
            if cap.within is None:
                capped = frozenset.intersection(*(kinds.of(tool, clause) for tool in cap.tools))
                for some in [frozenset({kind}) for kind in capped] if cap.each else [capped]:
                    yield Quota(clause.id, clause.says(), cap.most, cap.of, some)


def _limits(policy: Policy, kinds: Kinds) -> Iterator[Quota]:
    for entry in effective_limits(policy):
        if entry.name == "max_tool_calls" and STRICTNESS[entry.action] >= STRICTNESS["deny"]:
            session = entry.limit.scope == "session"
            text = f"`{entry.name}`: {entry.limit.max:g} in one {'session' if session else 'run'}"
            yield Quota(entry.name, text, int(entry.limit.max), "started", frozenset(kinds.all), session)
