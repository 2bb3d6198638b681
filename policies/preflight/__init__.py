"""Preflight: what is wrong with a stack is found before a run starts.

Rows, each importing only those above it:
    findings
    automata, names      all tool names a policy can tell apart
    clauses, words       the clauses of a stack, and what they say in words
    kinds                kinds of calls: a name, and what is known of the input
    derivation           the least fixed point of needs
    net_needs, needs     what each kind of call needs to have come before
    net_model, net_search
    order_models, order_search
    admitting, capping, evading, netting, providing, reachable, shadowing
    ordering
    run
"""

from .findings import Findings, PreflightFinding
from .run import preflight

__all__ = ["Findings", "PreflightFinding", "preflight"]
