"""Analyses a stack before a run starts: its mistakes, and the whole sessions that it allows."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..errors import wrong_type
from ..events.run_context import Capabilities, RunContext, Tool
from ..policy import Policy
from ..values.work_budget import MAX_STEPS, Work
from .findings import Findings, PreflightFinding, Proved, Refuted, Unknown

__all__ = ["Findings", "PreflightFinding", "Proved", "Refuted", "Unknown", "preflight", "verify"]


def preflight(
    policy: Policy,
    capabilities: Capabilities | None = None,
    context: RunContext | None = None,
    *,
    steps: int | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> Findings:
    """Find what would keep a run under this policy or stack from working; `.check()` raises if it can't start.

    Args:
        policy: one policy, or what `merge_policies` gave.
        capabilities: what the adapter can do; None skips what depends on it.
        context: the run's context, for `when`; None skips what depends on it.
        steps: the most steps to search, by default some seconds' worth. Unfinished checks are named in
            a `not_finished` finding, and `Findings.unfinished` is true.
        should_stop: called now and then; if it returns true, preflight ends as if its steps were used up.

    Raises:
        PolicyError: the policy is wrong in itself.
        ValueError: the capabilities or the context are something else.
    """
    if not isinstance(capabilities, Capabilities | None):
        raise ValueError(wrong_type("the capabilities of an adapter", capabilities))
    if not isinstance(context, RunContext | None):
        raise ValueError(wrong_type("a run context", context))
    from .all_checks import findings_of  # a monitor needs none of it

    return findings_of(policy, capabilities, context, Work(MAX_STEPS if steps is None else steps, should_stop))


def verify(
    stack: Policy | Sequence[Policy],
    *,
    keeps: Policy | Sequence[Policy] | None = None,
    no_looser_than: Policy | Sequence[Policy] | None = None,
    same_as: Policy | Sequence[Policy] | None = None,
    reach: Any = None,
    tools: Iterable[str | Tool] | None = None,
    context: RunContext | None = None,
    steps: int | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> Proved | Refuted | Unknown:
    """Answer one question about every session that a stack allows: with a proof, or with a shortest counterexample.

    An approval that is asked for may be given or not; a check in Python may answer anything; a budget that runs share
    may have something left. A session is refuted only after it was replayed on real monitors.

    Args:
        stack: the policies, as `merge_policies` gives them; a policy; or several.
        keeps: a property: policies whose rules no allowed session may violate.
        no_looser_than: policies; refuted by a call that gets a weaker action from the stack than from them.
        same_as: policies; refuted by a call that the two decide differently.
        reach: a selector, as in a rule: refuted by a session with such a call, proved if there is none.
        tools: the tools that the agent has; any tool if not given.
        context: the run's context; if not given, every context that a `when` can distinguish.
        steps: the most steps to search, by default half a minute's worth at most.
        should_stop: called now and then; if it returns true, the answer is unknown.

    Returns:
        A `SessionAnswer`: `Proved`; `Refuted`, with the `session` that shows it; or `Unknown`, with the `reason`.

    Raises:
        PolicyError: a policy is wrong in itself.
        ValueError: not one question, or one of the arguments is something else.
    """
    if not isinstance(context, RunContext | None):
        raise ValueError(wrong_type("a run context", context))
    from .questions import answer  # a monitor needs none of it

    questions = {"keeps": keeps, "no_looser_than": no_looser_than, "same_as": same_as, "reach": reach}
    return answer(stack, questions, tools, context, Work(MOST_WORK if steps is None else steps, should_stop))


MOST_WORK = 8_000_000
"""The most steps of one question to `verify`: half a minute's worth."""

ROOMS = (
    "all_checks",
    "redundancy_checks",
    "questions",
    "refinement",
    "replaying",
    "session_search",
    "alphabet",
    "played_rule",
    "limit_checks",
    "name_checks",
    "void_checks",
    "net_checks",
    "order_checks",
    "findings",
    "reachability",
    "explorer",
    "components",
    "call_classes",
    "values",
)
"""Top first: each imports only those below it."""
