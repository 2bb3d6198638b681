"""Preflight: what is wrong with a stack is found before a run starts.

Rows, each importing only those above it:
    findings
    automata, names      all tool names a policy can tell apart
    clauses, words       the clauses of a stack, and what they say in words
    kinds                kinds of calls: a name, and what is known of the input
    derivation           the least fixed point of needs
    net_needs, needs     what each kind of call needs to have come before
    net_model, net_search
    order_models, modelling, order_judges, order_search
    admitting, capping, evading, netting, providing, reachable, shadowing
    demanding, ordering, quotas
    run
"""

from ..errors import wrong_type
from ..policy import Policy
from ..stream.calls import Capabilities
from .findings import Findings, PreflightFinding

__all__ = ["Findings", "PreflightFinding", "preflight"]


def preflight(policy: Policy, capabilities: Capabilities | None = None) -> Findings:
    """What would keep a run under this policy, or stack, from doing its work; `.check()` raises if it must not start.

    Args:
        policy: one policy, or what `merge_policies` gave.
        capabilities: what the adapter can do; None leaves out what depends on it.

    Raises:
        PolicyError: the policy is wrong in itself.
        ValueError: the capabilities are none.
    """
    if not isinstance(capabilities, Capabilities | None):
        raise ValueError(wrong_type("the capabilities of an adapter", capabilities))
    from .run import findings_of  # who only judges needs none of it

    return findings_of(policy, capabilities)
