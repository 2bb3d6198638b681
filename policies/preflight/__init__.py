"""Preflight: what is wrong with a stack is found before a run starts.

Rows, each importing only those above it:
    findings
    automata, names      all tool names a policy can tell apart
    clauses, kinds       the stack as it is looked at: clauses, and kinds of calls
    derivation           the least fixed point of needs
    net_needs, needs     what each kind of call needs
    admitting, capping, reachable
    run
"""

from .findings import Findings, PreflightFinding
from .run import preflight

__all__ = ["Findings", "PreflightFinding", "preflight"]
