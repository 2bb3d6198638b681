"""Every check, on one stack."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext

from ..events.run_context import Capabilities, RunContext
from ..language.facts import ToolTable
from ..policy import Policy
from ..stack.clauses import Clause, clauses_of
from ..stack.merge import checked_stack
from ..values.work_budget import OutOfWork, Work
from .call_classes import CallClasses
from .explorer import clause_graphs
from .findings import Findings, PreflightFinding, finding
from .limit_checks import limit_findings, limits_as_rules, quota_findings
from .name_checks import ALIKE, adapter_findings, context_findings, odd_names, surprise_findings, unknown_names
from .net_checks import net_findings
from .order_checks import demand_findings, find_orders, never_callable, never_satisfied
from .reachability import Saturation
from .redundancy_checks import allow_findings, evasion_findings, shadow_findings


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
    checks.run("odd names", lambda: odd_names(clauses, capabilities))
    checks.run("lines that surprise", lambda: surprise_findings(clauses))
    checks.run("unknown names", lambda: unknown_names(stack, clauses, capabilities, work))
    table = ToolTable(capabilities.judged_by if capabilities else ())
    checks.run("rules taken together", lambda: _together(checks, stack, clauses, table, work), whole=True)
    return Findings([*checks.found, *checks.unfinished_finding(stack)])


def misspelt_names(
    policy: Policy, offered: Capabilities, *, alike: float = 0.8, tools_alike: float = ALIKE
) -> Findings:
    """Names in a stack that are nearly those of a tool of these or of its inputs; the run may have other tools."""
    work = Work()
    checks = _Checks(work)
    unknown = (
        each
        for each in unknown_names(policy, clauses_of(policy), offered, work, alike, tools_alike)
        if each.code in ("unknown_tool", "unknown_input") and each.severity == "report"
    )
    checks.run("names of tools", lambda: unknown, whole=True)
    return Findings([*checks.found, *checks.unfinished_finding(policy)])


class _Checks:
    """The findings so far, and the checks that did not finish."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self.found: list[PreflightFinding] = []
        self._unfinished: list[str] = []

    def run(self, name: str, check: Callable[[], Iterable[PreflightFinding]], *, whole: bool = False) -> bool:
        """Run one check on half of the steps left, or on all; keeps what it found. Whether it denies nothing."""
        before = len(self.found)
        try:
            with nullcontext() if whole else self._work.share(2):
                for each in check():
                    self.found.append(each)
        except OutOfWork:
            self._unfinished.append(name)
        return not any(each.severity == "refuse" for each in self.found[before:])

    def unfinished_finding(self, stack: Policy) -> Iterator[PreflightFinding]:
        if self._unfinished:
            yield finding(
                "not_finished",
                (stack.name, ""),
                f"the policy is too large to check in full; not finished: {', '.join(self._unfinished)}. "
                "Runs still enforce its rules",
                witness=self._unfinished,
                suggestion="use fewer rules, names and conditions, or smaller numbers",
            )


def _together(
    checks: _Checks, stack: Policy, clauses: tuple[Clause, ...], table: ToolTable, work: Work
) -> Iterator[PreflightFinding]:
    """Run the checks that need the kinds of calls that the clauses tell apart; `checks` keeps what they find."""
    kinds = CallClasses(stack, clauses, work, table)
    checks.run("nets", lambda: net_findings(clauses, kinds))
    large = frozenset(each.rule for each in checks.found if each.code in ("unbounded_net", "gave_up"))
    graphs = clause_graphs(clauses, kinds, large)
    binding = [graph for graph in graphs if graph.clause.binds]
    checks.run("allow lists", lambda: allow_findings(clauses, kinds, graphs))
    checks.run("adjacency", lambda: evasion_findings(clauses, kinds, graphs))
    checks.run("redundant rules", lambda: shadow_findings(clauses, kinds, graphs))
    binding += clause_graphs(limits_as_rules(stack), kinds)
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
