"""Checks before anything is launched: a policy that can never work does not start."""

from __future__ import annotations

from ..calls import Capabilities
from ..merge import effective_limits
from ..model import Policy
from .findings import Findings, PreflightFinding


def preflight(policy: Policy, capabilities: Capabilities | None = None) -> Findings:
    """Everything about a policy that refuses a run, or is worth knowing before it."""
    found = [
        PreflightFinding(
            code="zero_limit", severity="refuse", message=f"`{entry.name}` is 0", policy=entry.policy, rule=entry.name
        )
        for entry in effective_limits(policy)
        if entry.limit.max == 0
    ]
    return Findings(found)
