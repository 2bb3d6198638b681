"""The name each rule of a stack is reported under."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from ..policy import Allow, Policy, members_of
from ..rules.nets.shorthand import NetLine
from ..rules.nets.written import Net


class RuleIds(msgspec.Struct, frozen=True, kw_only=True):
    """The final ids of one member's clauses, in the order they are written."""

    tool_rules: tuple[str, ...]
    rules: tuple[str, ...]
    nets: tuple[str, ...]


def rule_ids(policy: Policy) -> tuple[RuleIds, ...]:
    """The ids of every clause, by member of the stack; no two are the same.

    An id that occurs more than once in the stack shows as `policy/id`; what is still the same is numbered.
    """
    members = members_of(policy)
    own = [list(_own_ids(member)) for member in members]
    repeated = {id for id, times in Counter(id for ids in own for id in ids).items() if times > 1}
    taken = {id for ids in own for id in ids if id not in repeated}
    final = []
    for member, ids in zip(members, own, strict=True):
        named = [_unique(f"{member.name}/{id}", taken) if id in repeated else id for id in ids]
        first, second = len(member.tool_rules), len(member.tool_rules) + len(member.rules)
        parts = tuple(named[:first]), tuple(named[first:second]), tuple(named[second:])
        final.append(RuleIds(tool_rules=parts[0], rules=parts[1], nets=parts[2]))
    return tuple(final)


def _own_ids(member: Policy) -> Iterator[str]:
    """The ids as written, `<type>-<n>` where none is; n counts the clauses of the type."""
    count: Counter[str] = Counter()
    for clause in (*member.tool_rules, *member.rules):
        kind = clause.type if hasattr(clause, "type") else "allow" if isinstance(clause, Allow) else "deny"
        count[kind] += 1
        yield clause.id or f"{kind}-{count[kind]}"
    for net in member.nets:
        yield net_name(net)


def net_name(net: str | NetLine | Net) -> str:
    """What a net is called: its name, or its line."""
    if isinstance(net, Net):
        return net.name
    return net.line if isinstance(net, NetLine) else net


def _unique(id: str, taken: set[str]) -> str:
    """The id itself, or with the first number that makes it new; it is taken from then on."""
    name, n = id, 1
    while name in taken:
        n += 1
        name = f"{id}#{n}"
    taken.add(name)
    return name
