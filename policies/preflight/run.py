"""Every check, on one stack."""

from __future__ import annotations

from ..policy import Policy
from ..stack.check import checked_stack
from ..stack.clauses import clauses_of
from ..stream.calls import Capabilities
from .alphabet.call_classes import Kinds
from .checks.adapter import adapter_findings
from .checks.allow_lists import allow_findings
from .checks.evasions import evasion_findings
from .checks.limits import limit_findings
from .checks.nets import net_findings
from .checks.obligations import demand_findings
from .checks.order import find_orders
from .checks.quotas import quota_findings
from .checks.shadowing import shadow_findings
from .findings import Findings
from .search.needs import stated_needs
from .search.order_judges import judges_of
from .search.reachable import Possible, never_callable, never_satisfied


def findings_of(policy: Policy, capabilities: Capabilities | None) -> Findings:
    """The findings of every check; see `preflight`."""
    stack = checked_stack(policy)
    clauses = clauses_of(stack)
    kinds = Kinds(stack, clauses)
    nets = list(net_findings(clauses, kinds))
    possible = Possible(stated_needs(clauses, kinds), kinds)
    large = frozenset(finding.rule for finding in nets if finding.code in ("unbounded_net", "gave_up"))
    judges = judges_of(clauses, kinds, large)
    given_up = list(find_orders(possible, judges))
    alone = [
        *never_callable(possible),
        *never_satisfied(clauses, possible),
        *quota_findings(stack, clauses, possible),
    ]
    refused = any(finding.severity == "refuse" for finding in alone)
    return Findings(
        [
            *adapter_findings(stack, clauses, capabilities),
            *limit_findings(stack, capabilities),
            *allow_findings(clauses, kinds),
            *nets,
            *given_up,
            *alone,
            *(() if refused else demand_findings(clauses, possible, judges)),
            *shadow_findings(clauses, kinds),
            *evasion_findings(clauses),
        ]
    )
