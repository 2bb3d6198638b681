"""Nets that are added to a session, or taken from it, while it lives."""

from __future__ import annotations

from typing import Any

import msgspec

from ..errors import wrong_type
from ..policy import Policy
from ..reading.reader import check_policy
from ..rules.nets.shorthand import NetLine
from ..rules.nets.written import Net
from ..stack.ids import net_name
from ..stream.events import NetJoined, NetLeft
from .program.index import CompiledRule
from .state import SessionState


def add_net(on: SessionState, net: str | NetLine | Net, **attached: Any) -> None:
    """Judge by one net more from now on; one that was removed goes on where it was."""
    if not isinstance(net, str | NetLine | Net):
        raise ValueError(wrong_type("a net", net))
    check_policy(Policy(name="added", nets=[net]))
    name = net_name(net)
    if _active(on, name):
        raise ValueError(f"a net `{name}` is active already")
    if name in on.removed_nets:
        on.adopt(on.program.with_rule(on.removed_nets.pop(name)))
    else:
        on.adopt(on.program.with_net(net, **attached))
        on.added_nets.append(net)


def net_joined(on: SessionState, event: NetJoined) -> None:
    """A net joined the run, unless it has already: the live session knows before its record does."""
    if not _active(on, event.name):
        add_net(on, read_net(event.net))


def net_left(on: SessionState, event: NetLeft) -> None:
    """A net left the run, unless it has already."""
    if _active(on, event.name):
        remove_net(on, event.name)


def restore_nets(on: SessionState) -> None:
    """Another run begins: it is judged by the nets of its policies, and no others."""
    added = {net_name(net) for net in on.added_nets}
    for name in added:
        if _active(on, name):
            remove_net(on, name)
    for name in [name for name in on.removed_nets if name not in added]:
        on.adopt(on.program.with_rule(on.removed_nets.pop(name)))


def read_net(data: Any) -> str | Net | NetLine:
    """A net as it was written down. Raises one of UNREADABLE for anything else."""
    if isinstance(data, str):
        return data
    return msgspec.convert(data, NetLine) if "line" in data else msgspec.convert(data, Net)


def _active(on: SessionState, name: str) -> CompiledRule | None:
    return next((rule for rule in on.program.rules if rule.kind == "net" and rule.id == name), None)


def remove_net(on: SessionState, name: str) -> None:
    """Judge without a net from now on; it keeps its state."""
    if (rule := _active(on, name)) is None:
        raise KeyError(name)
    on.removed_nets[name] = rule
    on.adopt(on.program.without(rule.number))
