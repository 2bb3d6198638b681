"""Which tools could be called next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ...errors import wrong_type
from ...language.naming import NamingKind
from ...stream.calls import STRICTNESS
from ..session import CallInFlight
from ..state import SessionState


def narrow(on: SessionState, tools: Sequence[str]) -> list[str]:
    """The tools that could be called in the next response. Raises ValueError for anything that is not a list."""
    if not isinstance(tools, Iterable):
        raise ValueError(wrong_type("a list of tools", tools))
    if isinstance(tools, str):
        raise ValueError(f"expected a list of tools, got the text `{tools[:80]}`; use `[{tools[:80]!r}]`")
    session = on.session
    shut = any(e.action in ("deny", "cancel") for e, _ in on.program.budgets.refusing(session.budgets))
    if shut or on.program.limits.closed(session.limits, session.meter):
        return []
    return [tool for tool in tools if next(refusing(on, tool), None) is None]


def refusing(on: SessionState, tool: str) -> Iterator[str]:
    """The ids of the rules that refuse every call of a tool, whatever it does."""
    first, *others = (_refusing(on, tool, kind) for kind in on.tools.kinds(tool))
    also = [frozenset(other) for other in others]
    return (rule for rule in first if all(rule in other for other in also))


def _refusing(on: SessionState, tool: str, kind: NamingKind) -> Iterator[str]:
    count = on.session.count
    ahead = CallInFlight("", tool, None, on.session.turn + 1, on.memory, kind=kind)
    visits = on.program.plan(kind).visits
    named = {visit.rule.number for visit in visits}
    due = [(number, 0, 0) for number in on.due_next() if number not in named]
    for number, sure, maybe in [*((v.rule.number, *v.outlook(ahead)) for v in visits), *due]:
        rule = on.rules[number]
        if STRICTNESS[rule.action] < STRICTNESS["deny"] and rule.id not in on.session.broken:
            continue
        if rule.machine.closed(on.states[number], sure, maybe, count, ahead):
            yield rule.id
