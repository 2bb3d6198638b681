"""Limits that let nothing be done, costs without a price, and attempts to loosen what is locked."""

from __future__ import annotations

from collections.abc import Iterator

from ...monitor.prices import PriceBook
from ...policy import Limits, Policy
from ...stack.limits import effective_limits
from ...stack.locks import loosened
from ...stack.price_tables import price_tables
from ...stream.calls import Capabilities
from ..findings import PreflightFinding, finding

KEPT_AT_ZERO = ("max_tool_calls", "max_cost_usd")
"""A run that only talks, and one that is free; without tokens, turns or time there is no run."""


def limit_findings(policy: Policy, capabilities: Capabilities | None) -> Iterator[PreflightFinding]:
    """What is wrong with the limits of a stack."""
    limits = effective_limits(policy)
    for entry in limits:
        if entry.limit.max == 0 and entry.name not in KEPT_AT_ZERO:
            yield finding(
                "zero_limit",
                (entry.policy, entry.name),
                f"`{entry.name}` is 0: nothing could be done",
                suggestion="give it a number above 0, or leave it out",
            )
    yield from _loosened(policy)
    capped = next((entry for entry in limits if entry.name == "max_cost_usd"), None)
    if capped is not None and policy.unpriced == "reject":
        yield from _unpriced(policy, capped.policy, capabilities)


def _loosened(policy: Policy) -> Iterator[PreflightFinding]:
    """What would loosen a locked policy, and has no effect."""
    for attempt in loosened(policy):
        limit = attempt.name in Limits.__struct_fields__
        yield finding(
            "loosened_limit" if limit else "loosened",
            (attempt.policy, attempt.name),
            f"`{attempt.name}: {attempt.given}` has no effect: `{attempt.locked_policy}` is locked"
            f"{' at' if limit else ', and there it is'} {attempt.holds}",
            suggestion=f"stay at or below {attempt.holds}" if limit else "",
        )


def _unpriced(policy: Policy, member: str, capabilities: Capabilities | None) -> Iterator[PreflightFinding]:
    """`unpriced: reject`, and nobody can say what the run will cost."""
    if capabilities is not None and capabilities.reports_cost:
        return
    model = capabilities.model if capabilities is not None else None
    if model is None and policy.prices:
        yield finding(
            "unknown_model",
            (member, "max_cost_usd"),
            "`unpriced: reject`: whether the model has a price is only known once it has answered",
        )
    elif model is None or PriceBook(price_tables(policy)).source(model) is None:
        yield finding(
            "unpriced",
            (member, "max_cost_usd"),
            "`unpriced: reject`, and no price is known" + (f" for `{model}`" if model else ""),
            witness=(model,) if model else (),
            suggestion="add the model to `prices`, or say `unpriced: warn`",
        )
