"""Limits and budgets that let nothing be done, costs without a price, and attempts to loosen what is locked."""

from __future__ import annotations

from collections.abc import Iterator

from ...monitor.usage.prices import PriceBook
from ...policy import Limits, Policy, members_of
from ...stack.budgets import BudgetEntry, effective_budgets
from ...stack.limits import LimitEntry, effective_limits, figure
from ...stack.locks import loosened
from ...stack.price_tables import price_tables
from ...stream.calls import Capabilities
from ..findings import PreflightFinding, finding
from ..work import Work

KEPT_AT_ZERO = ("max_tool_calls", "max_cost_usd")
"""A run that only talks, and one that is free; without tokens, turns or time there is no run."""


USAGE = ("max_total_tokens", "max_input_tokens", "max_output_tokens", "max_cost_usd")
"""Limits on what a model uses, which only the agent can say."""
AHEAD = ("max_tool_calls", "max_turns")
"""Limits that are judged before the call that would exceed them."""
EFFECTS = {
    "warn": "is reported",
    "request_approval": "asks a person about every later call",
    "deny": "has every later call refused",
    "cancel": "ends the run",
}
"""What comes of a limit, by its action."""
BUDGET_EFFECTS = {
    "warn": "is reported, and runs continue",
    "request_approval": "asks a person about every later call; no run starts",
    "deny": "has every later call refused; no run starts",
    "cancel": "ends the runs that draw on it; no run starts",
}
"""What comes of a shared budget that is used up, by its action."""
UNGATED_BUDGET = "ends the runs that draw on it, as this adapter cannot hold every call; no run starts"
UNGATED = "has later calls refused where they are held, and ends the run where one is not"


def limit_findings(policy: Policy, capabilities: Capabilities | None, work: Work) -> Iterator[PreflightFinding]:
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
    yield from _budgets(policy, capabilities)
    yield from _loosened(policy, work)
    yield from _approvers(policy)
    if capabilities is not None:
        for entry in limits:
            yield _effect(entry, capabilities)
    capped = [(entry.policy, entry.name) for entry in limits if entry.name == "max_cost_usd"]
    capped += [(e.policy, e.budget.name) for e in effective_budgets(policy) if e.counts == "cost_usd"]
    if capped and policy.unpriced == "reject":
        yield from _unpriced(policy, capped[0], capabilities)


def _effect(entry: LimitEntry, capabilities: Capabilities) -> PreflightFinding:
    """What a limit will do where this adapter runs."""
    about = (entry.policy, entry.name)
    limit = f"`{entry.name}: {figure(entry.limit.max)}`"
    used = entry.name in USAGE
    if used and capabilities.usage == "none" and not (entry.name == "max_cost_usd" and capabilities.reports_cost):
        why = "the adapter does not report what the model uses"
        hint = "limit calls, turns or time as well"
        return finding("uncounted_limit", about, f"{limit} will not hold: {why}", suggestion=hint)
    late = " once the run is over and its usage known" if used and capabilities.usage == "at_end" else ""
    does = EFFECTS[entry.action] if entry.action != "deny" or capabilities.gate == "all" else UNGATED
    before = " before the call that would exceed it" if entry.name in AHEAD and capabilities.gate == "all" else ""
    return finding("limit_effect", about, f"{limit}, once reached, {does}{before}{late}")


def _loosened(policy: Policy, work: Work) -> Iterator[PreflightFinding]:
    """What would loosen a locked policy, and has no effect."""
    for attempt in loosened(policy, work.spend):
        limit = attempt.name in Limits.__struct_fields__
        yield finding(
            "loosened_limit" if limit else "loosened",
            (attempt.policy, attempt.name),
            f"`{attempt.name}: {attempt.given}` has no effect: `{attempt.locked_policy}` is locked"
            f"{' at' if limit else ', and there it is'} {attempt.holds}",
            suggestion=f"stay at or below {attempt.holds}" if limit else "",
        )


def _approvers(policy: Policy) -> Iterator[PreflightFinding]:
    """Approvers of several policies, who have nobody in common: each call that is to be approved is refused."""
    given = [
        (m.name, m.approval.approvers) for m in members_of(policy) if m.approval and m.approval.approvers is not None
    ]
    if given and policy.approval is not None and not policy.approval.approvers:
        shown = tuple(f"{name}: {', '.join(who) or 'nobody'}" for name, who in given)
        yield finding(
            "no_approver",
            (given[-1][0], "approval.approvers"),
            f"nobody may approve: no name or group is among the approvers of every policy ({'; '.join(shown)})",
            witness=shown,
            suggestion="name somebody in all of them; a group is compared by its name",
        )


def _unpriced(
    policy: Policy, about: tuple[str, str], capabilities: Capabilities | None
) -> Iterator[PreflightFinding]:
    """`unpriced: reject`, and nobody can say what the run will cost."""
    if capabilities is not None and capabilities.reports_cost:
        return
    model = capabilities.model if capabilities is not None else None
    if model is None and policy.prices:
        yield finding(
            "unknown_model",
            about,
            "`unpriced: reject`: whether the model has a price is only known once it has answered",
        )
    elif model is None or PriceBook(price_tables(policy)).source(model) is None:
        yield finding(
            "unpriced",
            about,
            "`unpriced: reject`, and there is no price" + (f" for `{model}`" if model else ""),
            witness=(model,) if model else (),
            suggestion="add the model to `prices`, or use `unpriced: warn`",
        )


def _budgets(policy: Policy, capabilities: Capabilities | None) -> Iterator[PreflightFinding]:
    """What is wrong with the budgets of a stack, and what they will do."""
    for entry in effective_budgets(policy):
        about = (entry.policy, entry.budget.name)
        if entry.budget.max == 0 and entry.counts != "tool_calls":
            yield finding(
                "zero_budget",
                about,
                f"`{entry.budget.limit}` is 0: no run could start",
                suggestion="give it a number above 0, or leave the budget out",
            )
        if capabilities is not None:
            yield _budget_effect(entry, about, capabilities)


def _budget_effect(entry: BudgetEntry, about: tuple[str, str], capabilities: Capabilities) -> PreflightFinding:
    budget = f"budget `{entry.budget.name}` ({entry.budget.limit} {figure(entry.budget.max)})"
    used = entry.counts in ("cost_usd", "total_tokens")
    if used and capabilities.usage == "none" and not (entry.counts == "cost_usd" and capabilities.reports_cost):
        why = "the adapter does not report what the model uses"
        hint = "give a budget of calls or time as well"
        return finding("uncounted_budget", about, f"{budget} will not hold: {why}", suggestion=hint)
    late = " once the run is over and its usage known" if used and capabilities.usage == "at_end" else ""
    if entry.counts == "running" and entry.action != "warn":
        return finding("budget_effect", about, f"{budget}, once used up, lets no run start until one ends")
    ungated = entry.action == "deny" and capabilities.gate != "all"
    does = UNGATED_BUDGET if ungated else BUDGET_EFFECTS[entry.action]
    return finding("budget_effect", about, f"{budget}, once used up, {does}{late}")
