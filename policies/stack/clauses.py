"""The clauses of a stack, resolved once for compiling, preflight and drawing: final ids, actions, and names."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..events.calls import STRICTNESS
from ..language.conditions import Condition, all_in
from ..language.selectors import NameScope, Selector, ToolWhere, VirtualTool, items_of
from ..policy import Allow, Deny, OnViolation, Policy, members_of, virtual_tools_of
from ..rules.machine import Machine
from ..rules.net_shorthand import NetLine, net_of
from ..rules.petri_net import Net
from ..rules.rule import Profile, Rule
from .merge import effective_action

LISTS = ("tool_rules", "rules", "nets")
"""The lists of a policy that hold its clauses, in their order."""


def rule_ids(policy: Policy) -> list[list[str]]:
    """The ids of every clause and every `map` line, by policy of the stack; all are different.

    An id that occurs more than once in the stack becomes `policy/id`; ids that are still equal are numbered.
    """
    members = members_of(policy)
    own = [list(_own_ids(member)) for member in members]
    repeated = {id for id, times in Counter(id for ids in own for id in ids).items() if times > 1}
    taken = {id for ids in own for id in ids if id not in repeated}
    return [
        [_unique(f"{member.name}/{id}", taken) if id in repeated else id for id in ids]
        for member, ids in zip(members, own, strict=True)
    ]


def _own_ids(member: Policy) -> Iterator[str]:
    """The ids as written, `<type>-<n>` where none is; n counts the clauses of the type."""
    count: Counter[str] = Counter()
    for clause in (*member.tool_rules, *member.rules):
        count[clause.type] += 1
        yield clause.id or f"{clause.type}-{count[clause.type]}"
    for net in member.nets:
        yield net_name(net)


def net_name(net: str | NetLine | Net) -> str:
    """A net's display name: its name, or its line."""
    if isinstance(net, Net):
        return net.name
    return net.line if isinstance(net, NetLine) else net


def _unique(id: str, taken: set[str]) -> str:
    """The id, with the first number that makes it new if it is taken; adds it to `taken`."""
    name, n = id, 1
    while name in taken:
        n += 1
        name = f"{id}#{n}"
    taken.add(name)
    return name


class Clause(NamedTuple):
    """One tool rule, rule or net of a policy.

    `place` is the list of its policy that has it, and where. `profile` is what its record says of itself. `line`: the
    net was written in one line.
    """

    id: str
    policy: str
    member: int
    record: Allow | Deny | Rule | Net
    action: OnViolation
    scope: NameScope
    place: tuple[str, int]
    profile: Profile
    line: bool = False

    @property
    def key(self) -> str | None:
        """The path whose values it applies to separately; only rules may have one."""
        return self.record.key if isinstance(self.record, Rule) else None

    @property
    def wheres(self) -> Iterator[ToolWhere]:
        """Its selectors that ask for more than a name."""
        items = (item for selector in self.profile.all() for item in items_of(selector))
        return (item for item in items if isinstance(item, ToolWhere) and item.where)

    @property
    def conditions(self) -> Iterator[Condition]:
        """The conditions on the inputs of its calls, and those inside them."""
        return (condition for where in self.wheres for condition in all_in(where.where))

    @property
    def names(self) -> tuple[str, ...]:
        """The names that its selectors mean, aliases replaced."""
        return self.patterns(*self.profile.all())

    def patterns(self, *selectors: Selector) -> tuple[str, ...]:
        """The names that selectors mean, aliases replaced."""
        return self.scope.patterns(*selectors)

    def machine(self) -> Machine:
        """The machine that evaluates it, whatever the values of its `key`."""
        return self.record.compile(self.scope)

    def abstractions(self) -> Iterator[Machine]:
        """The machines of its abstraction."""
        return (record.compile(self.scope) for record in self.profile.abstraction)

    def words(self) -> str:
        """Its description in words, its id first."""
        return f"`{self.id}`: {self.profile.words}"

    @property
    def denies(self) -> bool:
        """Whether its action keeps a call from running."""
        return STRICTNESS[self.action] >= STRICTNESS["deny"]

    @property
    def strictest(self) -> OnViolation:
        """The strictest action of its findings: what needs a person's approval asks for it whatever its action is."""
        actions: tuple[OnViolation, ...] = (self.action, self.profile.own_action or self.action)
        return max(actions, key=STRICTNESS.__getitem__)

    @property
    def always(self) -> bool:
        """Whether it applies to every run."""
        return not self.record.when

    @property
    def binds(self) -> bool:
        """Whether no run can bypass it."""
        return self.denies and self.always


def clauses_of(policy: Policy) -> tuple[Clause, ...]:
    """Every clause of a stack, in order; nets in their full form."""
    return tuple(_clauses(policy))


def scope_of(members: Iterable[Policy]) -> NameScope:
    """The names that policies give tools, including `map` lines; a name given twice stands for all its tools."""
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
        written = [((name, at), each) for name in LISTS for at, each in enumerate(getattr(member, name))]
        for id, (place, raw) in zip(ids, written, strict=True):
            line = isinstance(raw, str | NetLine)
            record = net_of(raw) if line else raw
            if not isinstance(record, VirtualTool):
                action = effective_action(member, record.action, policy)
                yield Clause(id, member.name, n, record, action, scope, place, record.profile(), line)
