"""Every check, on one stack."""

from __future__ import annotations

from ..policy import Policy
from ..stack.clauses import clauses_of
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
from .checks.unknown_names import unknown_names
from .findings import Findings
from .search.saturation import Saturation
from .search.system import systems_of


def findings_of(policy: Policy, capabilities: Capabilities | None, context: RunContext | None) -> Findings:
    """The findings of every check; see `preflight`."""
    stack = checked_stack(policy)
    clauses = clauses_of(stack)
    kinds = Kinds(stack, clauses)
    nets = list(net_findings(clauses, kinds))
    large = frozenset(finding.rule for finding in nets if finding.code in ("unbounded_net", "gave_up"))
    systems = systems_of(clauses, kinds, large)
    binding = [system for system in systems if system.clause.binds]
    possible = Saturation(binding, kinds)
    given_up = list(find_orders(possible, binding))
    alone = [
        *never_callable(possible),
        *never_satisfied(clauses, possible),
        *quota_findings(stack, clauses, possible),
    ]
    refused = any(finding.severity == "refuse" for finding in alone)
    return Findings(
        [
            *adapter_findings(stack, clauses, capabilities),
            *context_findings(stack, clauses, context),
            *limit_findings(stack, capabilities),
            *unknown_names(stack, clauses, capabilities),
            *allow_findings(clauses, kinds, systems),
            *nets,
            *given_up,
            *alone,
            *(() if refused else demand_findings(possible, binding)),
            *shadow_findings(clauses, kinds, systems),
            *evasion_findings(clauses, kinds, systems),
            *odd_names(clauses),
        ]
    )
