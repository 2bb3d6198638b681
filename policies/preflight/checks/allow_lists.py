"""Allow lists that admit nothing, and entries of them that are denied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ...language.selectors import ToolWhere
from ...policy import Allow, Deny
from ...rules.count import Count, MaxCalls
from ...rules.lists import Allowlist, Blocklist
from ...rules.nets.written import Net
from ...stack.clauses import Clause, items_of
from ...stream.calls import rule_name
from ..alphabet.call_classes import Kinds
from ..findings import PreflightFinding


def allow_findings(clauses: tuple[Clause, ...], kinds: Kinds) -> Iterator[PreflightFinding]:
    """What is wrong with the allow lists of a stack."""
    lists = [clause for clause in clauses if isinstance(clause.record, Allow | Allowlist)]
    empty = [clause for clause in lists if not _tools(clause)]
    for clause in empty:
        yield PreflightFinding(
            code="empty_allow_list",
            severity="refuse",
            message="the allow list is empty: no tool could be called",
            policy=clause.policy,
            rule=clause.id,
            suggestion="list the tools that may be called",
        )
    if not empty:
        yield from _no_common_name([clause for clause in lists if clause.binds], kinds)
    for clause in lists:
        yield from _denied_entries(clause, clauses, kinds)


def _tools(clause: Clause) -> Sequence[str | ToolWhere]:
    record = clause.record
    assert isinstance(record, Allow | Deny | Allowlist | Blocklist)
    return record.tools


def _names(clause: Clause, kinds: Kinds, entry: str | ToolWhere | None = None) -> frozenset[str]:
    """The names that an allow list, or one entry of it, admits."""
    reaches = kinds.reaches(_tools(clause) if entry is None else entry, clause, own_name=True)
    return frozenset(name for reach in reaches for name in reach.names)


def _no_common_name(lists: list[Clause], kinds: Kinds) -> Iterator[PreflightFinding]:
    """All lists must admit a call; together they admit none."""
    common = frozenset(kinds.names.all)
    for n, clause in enumerate(lists):
        common &= _names(clause, kinds)
        if not common and kinds.names.complete:
            shown = tuple(f"{rule_name(c.policy, c.id)}: {_listed(_tools(c))}" for c in lists[: n + 1])
            yield PreflightFinding(
                code="disjoint_allow_lists",
                severity="refuse",
                message=f"no tool is in all allow lists: {' | '.join(shown)}",
                policy=clause.policy,
                rule=clause.id,
                witness=shown,
                suggestion="a call must be in every allow list of the stack; leave one list, or let them overlap",
            )
            return


def _listed(entries: Iterable[str | ToolWhere]) -> str:
    return ", ".join(f"`{entry if isinstance(entry, str) else entry.tool}`" for entry in entries)


def _denied_entries(clause: Clause, clauses: tuple[Clause, ...], kinds: Kinds) -> Iterator[PreflightFinding]:
    """Entries of which the same or an earlier policy denies every name."""
    denies = [(other, said) for other in clauses if other.member <= clause.member and (said := _denied_by(other))]
    denied = {other.id: _unconditionally(other, said, kinds) for other, said in denies}
    for entry in items_of(_tools(clause)):
        names = _names(clause, kinds, entry)
        if not names or not kinds.names.complete or not names <= frozenset().union(*denied.values()):
            continue
        by = tuple((rule_name(o.policy, o.id), said) for o, said in denies if denied[o.id] & names)
        yield PreflightFinding(
            code="denied_allow_entry",
            severity="refuse",
            message=f"{_listed([entry])} is allowed and denied by {_listed(name for name, _ in by)}",
            policy=clause.policy,
            rule=clause.id,
            witness=tuple(f"{name}: {_listed(said)}" for name, said in by),
            suggestion="take it out of one of the two",
        )


def _denied_by(clause: Clause) -> tuple[str | ToolWhere, ...]:
    """What a clause denies by naming it: a list, none of which may be called, or a net `block X`."""
    if not clause.binds:
        return ()
    match clause.record:
        case Deny(tools=tools) | Blocklist(tools=tools) | MaxCalls(max=0, tool=tools) | Count(max=0, tool=tools):
            return items_of(tools)
        case Net(transitions=(only,)) as net if clause.line and only.inputs and not net.initial_marking:
            return only.tools
    return ()


def _unconditionally(clause: Clause, denied: tuple[str | ToolWhere, ...], kinds: Kinds) -> frozenset[str]:
    """The names that a deny refuses whatever the input."""
    found = kinds.of(denied, clause)
    return frozenset(kind.name for kind in found if not kind.facets)
