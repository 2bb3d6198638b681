"""The clauses of a stack, resolved once for compiling, preflight and drawing: final ids, actions, and names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..language.selectors import NameScope, Selector, VirtualTool
from ..policy import Allow, Deny, OnViolation, Policy, members_of, virtual_tools_of
from ..rules.machine import Machine
from ..rules.nets.machine import NetMachine
from ..rules.nets.shorthand import NetLine, net_of
from ..rules.nets.written import Net
from ..rules.record import Roles, Rule
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
    scope: NameScope
    line: bool = False

    @property
    def roles(self) -> Roles:
        """Its selectors, by what their calls are to it."""
        return self.record.roles()

    def patterns(self, *selectors: Selector) -> tuple[str, ...]:
        """The names that selectors mean, aliases replaced."""
        return self.scope.patterns(*selectors)

    def machine(self) -> Machine:
        """What judges it, whatever the values of its `key`."""
        return (
            NetMachine(self.record, self.scope) if isinstance(self.record, Net) else self.record.compile(self.scope)
        )

    def outlines(self) -> Iterator[Machine]:
        """What judges it as far as the names of calls decide."""
        if isinstance(self.record, Rule):
            yield from (rule.compile(self.scope) for rule in self.record.outline())
        elif not isinstance(self.record, Net) or self.record.followable:
            yield self.machine()

    def says(self) -> str:
        """What it says in words, its id first."""
        return f"`{self.id}`: {self.record.words()}"

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


def scope_of(members: Iterable[Policy]) -> NameScope:
    """The names that policies give tools, `map` lines among them; a name given twice stands for all its tools."""
    aliases: dict[str, tuple[str, ...]] = {}
    virtual: list[VirtualTool] = []
    for member in members:
        for name, tools in member.aliases.items():
            folded = name.casefold()
            aliases[folded] = (*aliases.get(folded, ()), *tools)
        virtual += virtual_tools_of(member)
    return NameScope(aliases, tuple(virtual))


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
