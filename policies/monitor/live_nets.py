"""Nets that are added to a session, or taken from it, while it lives."""

from __future__ import annotations

from typing import Any

from ..errors import wrong_type
from ..policy import Policy
from ..reading.reader import check_policy
from ..rules.nets.shorthand import NetLine
from ..rules.nets.written import Net
from ..stack.ids import net_name
from .state import SessionState


def add_net(on: SessionState, net: str | NetLine | Net, **attached: Any) -> None:
    """Judge by one net more from now on; one that was removed goes on where it was."""
    if not isinstance(net, str | NetLine | Net):
        raise ValueError(wrong_type("a net", net))
    check_policy(Policy(name="added", nets=[net]))
    name = net_name(net)
    if any(rule.kind == "net" and rule.id == name for rule in on.program.rules):
        raise ValueError(f"a net `{name}` is active already")
    if name in on.removed_nets:
        on.adopt(on.program.with_rule(on.removed_nets.pop(name)))
    else:
        on.adopt(on.program.with_net(net, **attached))
        on.added_nets.append(net)


def remove_net(on: SessionState, name: str) -> None:
    """Judge without a net from now on; it keeps its state."""
    for rule in on.program.rules:
        if rule.kind == "net" and rule.id == name:
            on.removed_nets[name] = rule
            return on.adopt(on.program.without(rule.number))
    raise KeyError(name)
