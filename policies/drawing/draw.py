"""A policy, or a stack, as a picture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..monitor.monitor import Monitor
from ..policy import Policy
from ..rules.nets.written import Net
from ..rules.record import Rule
from ..stack.budgets import budget_in_words, effective_budgets
from ..stack.clauses import Clause, clauses_of
from ..stack.limits import effective_limits, figure
from ..stack.merge import checked_stack
from .marking import Marking
from .nets import net_section
from .order import order_section
from .picture import Picture


def draw(policy: Policy, monitor: Monitor | None = None) -> Picture:
    """The picture of `policy`; with a `monitor`, of where its session stands.

    Raises:
        PolicyError: the policy is wrong in itself.
    """
    stack = checked_stack(policy)
    clauses = clauses_of(stack)
    marking = Marking(monitor)
    order = order_section(clauses, marking)
    nets = (net_section(clause, marking) for clause in clauses if isinstance(clause.record, Net))
    return Picture(
        title=stack.name,
        sections=(*((order,) if order is not None else ()), *nets),
        lines=tuple(_lines(stack, clauses)),
        standing=bool(marking),
    )


def _lines(stack: Policy, clauses: Iterable[Clause]) -> Iterator[str]:
    """What is said in words: the limits, the budgets, the lists, and what has no order."""
    for entry in effective_limits(stack):
        yield f"{entry.name}: {figure(entry.limit.max)} ({entry.action})"
    for budget in effective_budgets(stack):
        yield budget_in_words(budget)
    for clause in clauses:
        drawn = clause.record.drawing() if isinstance(clause.record, Rule) else isinstance(clause.record, Net)
        if not drawn:
            yield f"{clause.says()} ({clause.action})".replace("`", "")
