"""Limits that let nothing be done, costs without a price, and attempts to loosen what is locked."""

from __future__ import annotations

from collections.abc import Iterator

from ...monitor.limits import figure
from ...monitor.prices import PriceBook
from ...policy import Policy
from ...stack.merge import effective_limits, loosened_limits
from ...stream.calls import Capabilities
from ..findings import PreflightFinding

KEPT_AT_ZERO = ("max_tool_calls", "max_cost_usd")
"""A run that only talks, and one that is free; without tokens, turns or time there is no run."""


def limit_findings(policy: Policy, capabilities: Capabilities | None) -> Iterator[PreflightFinding]:
    """What is wrong with the limits of a stack."""
    limits = effective_limits(policy)
    for entry in limits:
        if entry.limit.max == 0 and entry.name not in KEPT_AT_ZERO:
            yield PreflightFinding(
                code="zero_limit",
                severity="refuse",
                message=f"`{entry.name}` is 0: nothing could be done",
                policy=entry.policy,
                rule=entry.name,
                suggestion="give it a number above 0, or leave it out",
            )
    for loosened in loosened_limits(policy):
        yield PreflightFinding(
            code="loosened_limit",
            severity="report",
            message=f"`{loosened.name}: {figure(loosened.max)}` has no effect: `{loosened.locked_policy}` is locked "
            f"at {figure(loosened.ceiling)}",
            policy=loosened.policy,
            rule=loosened.name,
            suggestion=f"stay at or below {figure(loosened.ceiling)}",
        )
    capped = next((entry for entry in limits if entry.name == "max_cost_usd"), None)
    if capped is not None and policy.unpriced == "reject":
        yield from _unpriced(policy, capped.policy, capabilities)


def _unpriced(policy: Policy, member: str, capabilities: Capabilities | None) -> Iterator[PreflightFinding]:
    """`unpriced: reject`, and nobody can say what the run will cost."""
    if capabilities is not None and capabilities.reports_cost:
        return
    model = capabilities.model if capabilities is not None else None
    if model is None and policy.prices:
        yield PreflightFinding(
            code="unknown_model",
            severity="report",
            message="`unpriced: reject`: whether the model has a price is only known once it has answered",
            policy=member,
            rule="max_cost_usd",
        )
    elif model is None or PriceBook(policy.prices).source(model) is None:
        yield PreflightFinding(
            code="unpriced",
            severity="refuse",
            message="`unpriced: reject`, and no price is known" + (f" for `{model}`" if model else ""),
            policy=member,
            rule="max_cost_usd",
            witness=(model,) if model else (),
            suggestion="add the model to `prices`, or say `unpriced: warn`",
        )
