"""The clauses of a stack, resolved once for compiling, preflight and drawing: final ids, actions, and names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ..language.selectors import Scope, Selector, ToolWhere, VirtualTool
from ..policy import Allow, Deny, OnViolation, Policy, members_of
from ..rules.after import After, Eventually
from ..rules.before import Before, ImmediatelyBefore
from ..rules.lists import Allowlist, Blocklist
from ..rules.loop import CircuitBreaker
from ..rules.nets.shorthand import net_of
from ..rules.nets.written import Net, NetLine
from ..rules.never_after import ForbidsAfter, NeverAfter
from ..rules.precondition import Precondition, Requirement
from ..rules.provenance import Provenance, Source
from ..rules.record import Rule
from ..rules.sequence import ForbiddenSequence, Sequence
from ..stream.calls import STRICTNESS
from .actions import effective_action
from .ids import rule_ids


class Clause(NamedTuple):
    """One tool rule, rule or net of a member; `line` says that a net was written in one line."""

    id: str
    policy: str
    member: int
    record: Allow | Deny | Rule | Net
    action: OnViolation
    scope: Scope
    line: bool = False

    @property
    def refuses(self) -> bool:
        """Whether its action keeps a call from running."""
        return STRICTNESS[self.action] >= STRICTNESS["deny"]

    @property
    def always(self) -> bool:
        """Whether it holds for every run."""
        return not self.record.when

    @property
    def binds(self) -> bool:
        """Whether no run can get round it."""
        return self.refuses and self.always


def clauses_of(policy: Policy) -> tuple[Clause, ...]:
    """Every clause of a stack, in order; nets in their full form."""
    return tuple(_clauses(policy))


def scope_of(members: Iterable[Policy]) -> Scope:
    """The names that policies give tools, `map` lines among them; a name given twice stands for all its tools."""
    aliases: dict[str, tuple[str, ...]] = {}
    virtual: list[VirtualTool] = []
    for member in members:
        for name, tools in member.aliases.items():
            folded = name.casefold()
            aliases[folded] = (*aliases.get(folded, ()), *tools)
        mapped = (net_of(net) for net in member.nets)
        virtual += [*member.virtual_tools, *(made for made in mapped if isinstance(made, VirtualTool))]
    return Scope(aliases, tuple(virtual))


def _clauses(policy: Policy) -> Iterator[Clause]:
    for n, (member, ids) in enumerate(zip(members_of(policy), rule_ids(policy), strict=True)):
        scope = scope_of([member])
        written = (*member.tool_rules, *member.rules)
        for id, record in zip((*ids.tool_rules, *ids.rules), written, strict=True):
            yield Clause(id, member.name, n, record, effective_action(member, record.action, policy), scope)
        for id, raw in zip(ids.nets, member.nets, strict=True):
            if isinstance(net := net_of(raw), Net):
                action = effective_action(member, net.action, policy)
                yield Clause(id, member.name, n, net, action, scope, isinstance(raw, str | NetLine))


def items_of(selector: Any) -> tuple[str | ToolWhere, ...]:
    """The items of a selector."""
    return tuple(selector) if isinstance(selector, tuple | list) else (selector,)


def evidence_of(record: Any) -> Iterator[Selector]:
    """The selectors whose calls a clause takes as evidence that something was done."""
    match record:
        case Before() | ImmediatelyBefore():
            yield record.first
        case Precondition():
            yield from priors_of(record.requires)
        case Provenance():
            yield from (source.tool for source in record.from_ if isinstance(source, Source))
        case Net():
            yield from (t.tools for t in record.transitions if t.tools and t.outputs)


def priors_of(requires: Iterable[Requirement]) -> Iterator[Selector]:
    """The selectors of every `prior`, those in `any_of` too."""
    for requirement in requires:
        if isinstance(requirement.any_of, tuple):
            yield from priors_of(requirement.any_of)
        elif isinstance(requirement.prior, str | ToolWhere | tuple):
            yield requirement.prior


def restricted_by(record: Any) -> Iterator[Selector]:
    """The selectors whose calls a clause may refuse; none for one that looks at every call."""
    match record:
        case Deny() | Blocklist():
            yield record.tools
        case Before() | ImmediatelyBefore():
            yield record.then
        case NeverAfter():
            yield record.forbidden
        case ForbidsAfter():
            yield record.tools
        case After():
            yield record.trigger
        case Sequence():
            yield from record.tools
        case ForbiddenSequence():
            yield from record.sequence[-1:]
        case Net():
            yield from (t.tools for t in record.transitions if t.tools)
        case Allow() | Allowlist() | CircuitBreaker() | Eventually():
            return
        case _:
            yield from filter(None, [getattr(record, "tool", None)])


def selectors_of(record: Any) -> Iterator[Selector]:
    """Every selector of a clause."""
    match record:
        case Allow() | Allowlist():
            yield record.tools
        case NeverAfter():
            yield record.trigger
        case ForbidsAfter():
            yield record.tool
        case After():
            yield record.then
        case Eventually():
            yield record.tool
        case ForbiddenSequence():
            yield from record.sequence[:-1]
        case Net():
            yield record.free_tools
    yield from evidence_of(record)
    yield from restricted_by(record)
