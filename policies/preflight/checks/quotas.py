"""Calls that must come more often than they may."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

from ...policy import Policy
from ...rules.after import Eventually
from ...rules.count import Count, MaxCalls
from ...rules.nets.written import Net
from ...rules.never_after import ForbidsAfter, NeverAfter
from ...rules.require import Require
from ...stack.clauses import Clause
from ...stack.limits import effective_limits
from ...stack.wording import names, says, times
from ...stream.calls import STRICTNESS
from ..alphabet.call_classes import Kind, Kinds
from ..findings import PreflightFinding
from ..search.reachable import Possible

Of: TypeAlias = Literal["started", "completed", "attempted"]
COVERS: dict[Of, tuple[Of, ...]] = {
    "started": ("started", "completed"),
    "completed": ("completed",),
    "attempted": ("started", "completed"),
}
"""What a cap on calls in one state keeps down; refused attempts are attempts all the same."""


class Want(NamedTuple):
    """So many calls, of these kinds, must have come by the end."""

    clause: Clause
    least: int
    of: Of
    kinds: frozenset[Kind]
    named: str


class Cap(NamedTuple):
    """Of these kinds no more calls are let through; `says` in words. `lasting` unless another run lifts it."""

    id: str
    says: str
    most: int
    of: Of
    kinds: frozenset[Kind]
    lasting: bool = True


def quota_findings(policy: Policy, clauses: Sequence[Clause], possible: Possible) -> Iterator[PreflightFinding]:
    """The demands that the caps of the stack leave no room for, each with the first cap that does not."""
    kinds = possible.kinds
    if not kinds.names.complete:
        return
    caps = [*_caps(clauses, kinds), *_limits(policy, kinds)]
    told: set[str] = set()
    for cap in caps:
        wants = [want for want in _wants(clauses, possible) if want.of in COVERS[cap.of] and want.kinds <= cap.kinds]
        crowd = _crowd([want for want in wants if want.clause.id not in told], cap.most)
        if crowd:
            told.update(want.clause.id for want in crowd)
            yield _finding(crowd, cap)


def _crowd(wants: list[Want], most: int) -> list[Want]:
    """One want beyond the cap, or several, no call of which serves two, that are beyond it together."""
    chosen: list[Want] = []
    for want in sorted(wants, key=lambda want: -want.least):
        if all(want.kinds.isdisjoint(other.kinds) for other in chosen):
            chosen.append(want)
            if sum(each.least for each in chosen) > most:
                return chosen
    return []


def _finding(crowd: list[Want], cap: Cap) -> PreflightFinding:
    wanted = " and ".join(f"{want.named} must be called {_often(want.least)}" for want in crowd)
    they = ", and together they" if len(crowd) > 1 else " and"
    of_run = "" if cap.lasting else " in one run"
    return PreflightFinding(
        code="never_satisfied",
        severity="refuse" if cap.lasting else "report",
        message=f"{wanted}{they} may be called at most {times(cap.most)}{of_run} ({cap.says})",
        policy=crowd[0].clause.policy,
        rule=crowd[0].clause.id,
        witness=(*(says(want.clause) for want in crowd), cap.says),
        suggestion=f"raise `{cap.id}`, or ask for less",
    )


def _often(least: int) -> str:
    return times(least) if least > 1 else "at least once"


def _wants(clauses: Iterable[Clause], possible: Possible) -> Iterator[Want]:
    for clause in clauses:
        if not clause.binds or getattr(clause.record, "key", None) is not None:
            continue
        match clause.record:
            case Require(tool=tool) | Eventually(tool=tool):
                least = 1
            case Count(tool=tool) as count:
                least = (count.exact if count.exact is not None else count.min) or 0
            case _:
                continue
        of = clause.record.of if isinstance(clause.record, Count) else "started"
        reaches = possible.kinds.reaches(tool, clause)
        reached = {name for reach in reaches for name in reach.names}
        meant = frozenset(kind for kind in possible.calls if kind.name in reached)
        if least and meant:
            yield Want(clause, least, of, meant, names(tool))


def _caps(clauses: Iterable[Clause], kinds: Kinds) -> Iterator[Cap]:
    for clause in clauses:
        if not clause.binds or getattr(clause.record, "key", None) is not None:
            continue
        match clause.record:
            case MaxCalls(tool=tool, max=most):
                yield Cap(clause.id, says(clause), most, "started", kinds.of(tool, clause))
            case Count(tool=tool, of=of, within_turns=None) as count:
                limit = count.exact if count.exact is not None else count.max
                if limit is not None:
                    yield Cap(clause.id, says(clause), limit, of, kinds.of(tool, clause))
            case NeverAfter(trigger=trigger, forbidden=forbidden):
                twice = kinds.of(trigger, clause) & kinds.of(forbidden, clause)
                yield from (Cap(clause.id, says(clause), 1, "started", frozenset({kind})) for kind in twice)
            case ForbidsAfter(tool=trigger, tools=forbidden):
                twice = kinds.of(trigger, clause) & kinds.of(forbidden, clause)
                yield from (Cap(clause.id, says(clause), 1, "completed", frozenset({kind})) for kind in twice)
            case Net() as net:
                yield from _spent(clause, net, kinds)


def _spent(clause: Clause, net: Net, kinds: Kinds) -> Iterator[Cap]:
    """Tools of one transition only, each firing of which takes tokens that nothing gives back."""
    [*named] = [transition for transition in net.transitions if transition.tools]
    given = {place for transition in net.transitions for place in transition.outputs}
    if len(named) != 1 or net.free_tools or named[0].deferred:
        return
    spent = {place for place in named[0].inputs if place not in given}
    for place in sorted(spent):
        most = net.initial_marking.get(place, 0) // named[0].inputs.count(place)
        yield Cap(clause.id, says(clause), most, "started", kinds.of(named[0].tools, clause))


def _limits(policy: Policy, kinds: Kinds) -> Iterator[Cap]:
    for entry in effective_limits(policy):
        if entry.name == "max_tool_calls" and STRICTNESS[entry.action] >= STRICTNESS["deny"]:
            session = entry.limit.scope == "session"
            said = f"`{entry.name}`: {entry.limit.max:g} in one {'session' if session else 'run'}"
            yield Cap(entry.name, said, int(entry.limit.max), "started", frozenset(kinds.all), session)
