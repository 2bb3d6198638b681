"""Every check, on one stack."""

from __future__ import annotations

from ..calls import Capabilities
from ..merge import merge_policies
from ..model import Policy, members_of
from .admitting import allow_findings
from .capping import limit_findings
from .clauses import clauses_of
from .demanding import demand_findings
from .evading import evasion_findings
from .findings import Findings
from .kinds import Kinds
from .needs import stated_needs
from .netting import net_findings
from .order_judges import judges_of
from .ordering import find_orders
from .providing import adapter_findings
from .quotas import quota_findings
from .reachable import Possible, never_callable, never_satisfied
from .shadowing import shadow_findings


def findings_of(policy: Policy, capabilities: Capabilities | None) -> Findings:
    """The findings of every check; see `preflight`."""
    stack = merge_policies(list(members_of(policy)))
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
