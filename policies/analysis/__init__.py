"""Preflight: what is wrong with a stack is found before a run starts."""

from collections.abc import Callable

from ..errors import wrong_type
from ..events.run_context import Capabilities, RunContext
from ..policy import Policy
from ..values.work_budget import MAX_STEPS, Work
from .findings import Findings, PreflightFinding

__all__ = ["Findings", "PreflightFinding", "preflight"]


def preflight(
    policy: Policy,
    capabilities: Capabilities | None = None,
    context: RunContext | None = None,
    *,
    steps: int | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> Findings:
    """What would keep a run under this policy, or stack, from doing its work; `.check()` raises if it must not start.

    Args:
        policy: one policy, or what `merge_policies` gave.
        capabilities: what the adapter can do; None leaves out what depends on it.
        context: what the run will say of itself, as `when` asks for it; None leaves out what depends on it.
        steps: how much is looked at in all; some seconds' worth if not given. What that is too little for is named in
            a `not_finished` finding, and `Findings.unfinished` is true.
        should_stop: asked now and then; once it says yes, preflight ends as if its steps were used up.

    Raises:
        PolicyError: the policy is wrong in itself.
        ValueError: the capabilities or the context are something else.
    """
    if not isinstance(capabilities, Capabilities | None):
        raise ValueError(wrong_type("the capabilities of an adapter", capabilities))
    if not isinstance(context, RunContext | None):
        raise ValueError(wrong_type("a run context", context))
    from .all_checks import findings_of  # who only judges needs none of it

    return findings_of(policy, capabilities, context, Work(MAX_STEPS if steps is None else steps, should_stop))


ROOMS = (
    "all_checks",
    "limit_checks",
    "name_checks",
    "net_checks",
    "order_checks",
    "redundancy_checks",
    "surprise_checks",
    "findings",
    "reachability",
    "explorer",
    "call_classes",
)
"""Top first: each imports only those below it."""
