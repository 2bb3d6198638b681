"""A policy, or a stack, as a picture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..limits import figure
from ..merge import effective_limits, merge_policies
from ..model import Policy, members_of
from ..monitor import Monitor
from ..nets.records import Net
from ..preflight.clauses import Clause, clauses_of
from ..preflight.words import says
from .nets import net_section
from .order import DRAWN, order_section
from .picture import Picture
from .standing import Standing


def draw(policy: Policy, monitor: Monitor | None = None) -> Picture:
    """The picture of a policy; with a monitor, of where its session stands.

    Raises:
        PolicyError: the policy is wrong in itself.
    """
    stack = merge_policies(list(members_of(policy)))
    clauses = clauses_of(stack)
    standing = Standing(monitor)
    order = order_section(clauses, standing)
    nets = (net_section(clause, standing) for clause in clauses if isinstance(clause.record, Net))
    return Picture(
        title=stack.name,
        sections=(*((order,) if order is not None else ()), *nets),
        lines=tuple(_lines(stack, clauses)),
        standing=bool(standing),
    )


def _lines(stack: Policy, clauses: Iterable[Clause]) -> Iterator[str]:
    """What is said in words: the limits, the lists, and what has no order."""
    for entry in effective_limits(stack):
        yield f"{entry.name}: {figure(entry.limit.max)} ({entry.action})"
    for clause in clauses:
        if not isinstance(clause.record, (Net, *DRAWN)):
            yield f"{says(clause)} ({clause.action})".replace("`", "")
