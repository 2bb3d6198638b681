"""Preflight: what is wrong with a stack is found before a run starts."""

from collections.abc import Callable

from ..errors import wrong_type
from ..policy import Policy
from ..stream.calls import Capabilities, RunContext
from .findings import Findings, PreflightFinding
from .work import MAX_STEPS, Work

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
    from .run import findings_of  # who only judges needs none of it

    return findings_of(policy, capabilities, context, Work(MAX_STEPS if steps is None else steps, should_stop))


ROOMS = (
    "run",  # every check, on one stack
    "checks",  # one file a family of findings, named for the defect it finds
    "search",  # what a stack lets happen, searched on a finite view of it
    "alphabet",  # the finite classes of calls that preflight tells apart
    "work",  # how much is looked at, counted in steps
    "findings",  # what preflight finds
)
