"""Every check, on one stack."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext

from ..policy import Policy
from ..stack.clauses import Clause, clauses_of
from ..stack.merge import checked_stack
from ..stream.calls import Capabilities, RunContext
from .alphabet.call_classes import Kinds
from .checks.adapter import adapter_findings
from .checks.allow_lists import allow_findings
from .checks.evasions import evasion_findings
from .checks.limits import limit_findings
from .checks.missing_context import context_findings
from .checks.nets import net_findings
from .checks.never_callable import never_callable
from .checks.never_satisfied import never_satisfied
from .checks.obligations import demand_findings
from .checks.odd_names import odd_names
from .checks.order import find_orders
from .checks.quotas import quota_findings
from .checks.shadowing import shadow_findings
from .checks.surprises import surprise_findings
from .checks.unknown_names import unknown_names
from .findings import Findings, PreflightFinding, finding
from .search.saturation import Saturation
from .search.system import systems_of
from .work import OutOfWork, Work


def findings_of(
    policy: Policy, capabilities: Capabilities | None, context: RunContext | None, work: Work
) -> Findings:
    """The findings of every check; see `preflight`."""
    stack = checked_stack(policy)
    clauses = clauses_of(stack)
    checks = _Checks(work)
    checks.run("the adapter", lambda: adapter_findings(stack, clauses, capabilities))
    checks.run("the context", lambda: context_findings(stack, clauses, context))
    checks.run("limits and budgets", lambda: limit_findings(stack, capabilities, work))
    checks.run("odd names", lambda: odd_names(clauses))
    checks.run("lines that surprise", lambda: surprise_findings(clauses))
    checks.run("unknown names", lambda: unknown_names(stack, clauses, capabilities, work))
    checks.run("rules taken together", lambda: _together(checks, stack, clauses, work), whole=True)
    return Findings([*checks.found, *checks.unfinished_finding(stack)])


class _Checks:
    """What checks have found, and those that were not finished."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self.found: list[PreflightFinding] = []
        self._unfinished: list[str] = []

    def run(self, name: str, check: Callable[[], Iterable[PreflightFinding]], *, whole: bool = False) -> bool:
        """Run one check on half of the steps that are left, or on all of them; what it found is kept if it does not
        finish. Whether it refuses nothing.
        """
        before = len(self.found)
        try:
            with nullcontext() if whole else self._work.half():
                for each in check():
                    self.found.append(each)
        except OutOfWork:
            self._unfinished.append(name)
        return not any(each.severity == "refuse" for each in self.found[before:])

    def unfinished_finding(self, stack: Policy) -> Iterator[PreflightFinding]:
        """What was not finished, in one finding."""
        if self._unfinished:
            yield finding(
                "not_finished",
                (stack.name, ""),
                f"the policy is too large to check in full; not finished: {', '.join(self._unfinished)}. "
                "Its rules hold in runs all the same",
                witness=self._unfinished,
                suggestion="use fewer rules, names and conditions, or smaller numbers",
            )


def _together(checks: _Checks, stack: Policy, clauses: tuple[Clause, ...], work: Work) -> Iterator[PreflightFinding]:
    """What needs the kinds of calls that the clauses tell apart, each of them as a machine."""
    kinds = Kinds(stack, clauses, work)
    nets: list[PreflightFinding] = []
    checks.run("nets", lambda: _noted(net_findings(clauses, kinds), nets))
    large = frozenset(finding.rule for finding in nets if finding.code in ("unbounded_net", "gave_up"))
    systems = systems_of(clauses, kinds, large)
    binding = [system for system in systems if system.clause.binds]
    checks.run("allow lists", lambda: allow_findings(clauses, kinds, systems))
    checks.run("adjacency", lambda: evasion_findings(clauses, kinds, systems))
    checks.run("redundant rules", lambda: shadow_findings(clauses, kinds, systems))
    possible = Saturation(binding, kinds)
    checks.run("the order of calls", lambda: find_orders(possible, binding))
    satisfiable = [
        checks.run("tools that can never be called", lambda: never_callable(possible)),
        checks.run("calls that must come", lambda: never_satisfied(clauses, possible)),
        checks.run("how often calls must come", lambda: quota_findings(stack, clauses, possible)),
    ]
    if all(satisfiable):
        checks.run("all that must be called in one run", lambda: demand_findings(possible, binding))
    return iter(())


def _noted(found: Iterable[PreflightFinding], kept: list[PreflightFinding]) -> Iterator[PreflightFinding]:
    for each in found:
        kept.append(each)
        yield each
