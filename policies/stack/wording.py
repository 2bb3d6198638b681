"""What a clause says, in a few words."""

from __future__ import annotations

from collections.abc import Sequence

from ..language.selectors import Selector, ToolWhere
from ..policy import Allow, Deny
from ..rules.after import After, Eventually
from ..rules.before import Before, ImmediatelyBefore
from ..rules.check import Check
from ..rules.count import Count, MaxCalls
from ..rules.lists import Allowlist, Blocklist
from ..rules.loop import CircuitBreaker, Loop, MaxParallel
from ..rules.nets.written import Net
from ..rules.never_after import ForbidsAfter, NeverAfter
from ..rules.precondition import Precondition, Requirement
from ..rules.provenance import Provenance
from ..rules.require import Require
from ..rules.sequence import ForbiddenSequence
from ..rules.sequence import Sequence as SequenceRule
from .clauses import Clause, items_of


def names(selector: Selector) -> str:
    """A selector in words."""
    return " or ".join(_item(item) for item in items_of(selector))


def _item(item: str | ToolWhere) -> str:
    if isinstance(item, str):
        return f"`{item}`"
    shown = item.tool if isinstance(item.tool, str) else "|".join(item.tool)
    return f"`{shown}` (some inputs)" if item.where else f"`{shown}`"


def times(n: int) -> str:
    """How often, in words."""
    return "once" if n == 1 else f"{n} times"


def calls(n: int) -> str:
    """So many calls, without the figure where it is one."""
    return "call" if n == 1 else f"{n} calls"


def says(clause: Clause) -> str:
    """A clause in words, its id first."""
    return f"`{clause.id}`: {_said(clause)}"


def _said(clause: Clause) -> str:
    match clause.record:
        case (Allow() | Allowlist()) as allowed:
            return f"only {names(allowed.tools)}"
        case (Deny() | Blocklist()) as denied:
            return f"no {names(denied.tools)}"
        case Before(first=first, then=then):
            return f"{names(first)} before {names(then)}"
        case ImmediatelyBefore(first=first, then=then):
            return f"{names(first)} right before {names(then)}"
        case NeverAfter(trigger=trigger, forbidden=forbidden):
            return f"no {names(forbidden)} after {names(trigger)}"
        case ForbidsAfter(tool=trigger, tools=forbidden):
            return f"no {names(forbidden)} after {names(trigger)}"
        case After(trigger=trigger, then=then, within=within):
            when = "right after" if within == 1 else f"within {within} calls after"
            return f"{names(then)} {when} {names(trigger)}"
        case Eventually(tool=tool, within=within):
            return f"{names(tool)} {'as' if within == 1 else 'within'} the first {calls(within)}"
        case Require(tool=tool):
            return f"{names(tool)} must be called"
        case SequenceRule(tools=tools):
            return f"in order {_chain(tools)}"
        case ForbiddenSequence(sequence=tools):
            return f"never {_chain(tools)}"
        case Precondition(tool=tool, requires=requires):
            return f"{names(tool)} needs {', and '.join(map(_required, requires))}"
        case (Count() | MaxCalls()) as count:
            return f"{names(count.tool)} {_counted(count)}"
        case Loop(tool=tool, threshold=threshold, window=window):
            return f"{names(tool)} with one input fewer than {times(threshold)} in {calls(window)}"
        case MaxParallel(tool=tool, max=most):
            return f"{names(tool)} at most {times(most)} in one response"
        case CircuitBreaker(consecutive=row, total=total):
            limits = (f"{n} {word}" for n, word in ((row, "in a row"), (total, "in all")) if n is not None)
            return f"nothing more after refusals and failures: {' or '.join(limits)}"
        case Provenance(tool=tool, path=path):
            return f"`{path}` of {names(tool)} from known sources"
        case Check(tool=tool):
            return f"{names(tool)} as a function says"
        case Net(name=name):
            return f"net `{name}`"
    return clause.record.type


def _chain(tools: Sequence[Selector]) -> str:
    return " -> ".join(map(names, tools))


def _counted(count: Count | MaxCalls) -> str:
    if isinstance(count, MaxCalls):
        return f"at most {times(count.max)}"
    figures = (("exactly", count.exact), ("at least", count.min), ("at most", count.max))
    given = [(word, n) for word, n in figures if n is not None]
    return " and ".join([*(f"{word} {n}" for word, n in given[:-1]), f"{given[-1][0]} {times(given[-1][1])}"])


def _required(requirement: Requirement) -> str:
    if isinstance(requirement.any_of, Sequence):
        return " or ".join(map(_required, requirement.any_of))
    if isinstance(requirement.turns_gte, int):
        return f"{requirement.turns_gte} responses"
    if isinstance(requirement.user_said, str):
        return "a user message"
    assert isinstance(requirement.prior, str | ToolWhere | Sequence)
    return names(requirement.prior)
