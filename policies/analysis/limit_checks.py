"""Limits and budgets that allow nothing, costs without a price, and attempts to weaken what is locked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..events.calls import STRICTNESS
from ..events.run_context import Capabilities
from ..language.selectors import NameScope
from ..limits import LIMITS, Kind
from ..monitor.usage import PriceBook
from ..policy import Policy, members_of
from ..rules.count import MaxCalls
from ..rules.rule import Obligation, Of, names, times
from ..stack.clauses import Clause
from ..stack.locks import loosened
from ..stack.merge import BudgetEntry, LimitEntry, effective_budgets, effective_limits, price_tables
from ..values.amounts import figure
from ..values.work_budget import Work
from .call_classes import CallClass, CallClasses
from .findings import PreflightFinding, finding

if TYPE_CHECKING:
    from .reachability import Saturation


EFFECTS = {
    "warn": "is reported",
    "request_approval": "asks a person about every later call",
    "deny": "denies every later call",
    "cancel": "cancels the run",
}
"""The consequence of a limit, by its action."""

BUDGET_EFFECTS = {
    "warn": "is reported, and runs continue",
    "request_approval": "asks a person about every later call, and no run starts",
    "deny": "denies every later call, and no run starts",
    "cancel": "cancels the runs that use it, and no run starts",
}
"""The consequence of an exhausted shared budget, by its action."""

UNGATED_BUDGET = "cancels the runs that use it, because this adapter cannot hold every call, and no run starts"
UNGATED = "denies later calls that the adapter holds, and cancels the run at any other"


def limit_findings(policy: Policy, capabilities: Capabilities | None, work: Work) -> Iterator[PreflightFinding]:
    """What is wrong with the limits and budgets of a stack, and what each does where an adapter runs."""
    limits = effective_limits(policy)
    for entry in limits:
        if entry.limit.max == 0 and not entry.kind.zero_ok:
            names = (name for name in (entry.kind.spelled, entry.name) if name)
            yield finding(
                "zero_limit",
                (entry.policy, entry.name),
                f"{' or '.join(f'`{name}`' for name in names)} is 0: nothing could be done",
                suggestion="give it a number above 0, or leave it out",
            )
    yield from _budgets(policy, capabilities)
    yield from _loosened(policy, work)
    yield from _approvers(policy)
    if capabilities is not None:
        for entry in limits:
            yield _effect(entry, capabilities)
    capped = [(entry.policy, entry.name) for entry in limits if entry.kind.is_money]
    capped += [(e.policy, e.budget.name) for e in effective_budgets(policy) if e.budget.kind.is_money]
    if capped and policy.unpriced == "reject":
        yield from _unpriced(policy, capped[0], capabilities)


def _effect(entry: LimitEntry, capabilities: Capabilities) -> PreflightFinding:
    """The effect of a limit where this adapter runs."""
    about = (entry.policy, entry.name)
    limit = f"`{entry.name}: {figure(entry.limit.max)}`"
    if _uncounted(entry.kind, capabilities):
        hint = "limit calls, turns or time as well"
        return finding("uncounted_limit", about, f"{limit} {_NOT_HELD}", suggestion=hint)
    late = _late(entry.kind, capabilities)
    does = EFFECTS[entry.action] if entry.action != "deny" or capabilities.gate == "all" else UNGATED
    projected = entry.kind.projected and capabilities.gate == "all" and entry.action in ("warn", "cancel")
    before = " before the call that would exceed it" if projected else ""
    return finding("limit_effect", about, f"{limit}, once reached, {does}{before}{late}")


_NOT_HELD = "is not enforced: the adapter does not report what the model uses"


def _uncounted(kind: Kind, capabilities: Capabilities) -> bool:
    return kind.of_usage and capabilities.usage == "none" and not (kind.is_money and capabilities.reports_cost)


def _late(kind: Kind, capabilities: Capabilities) -> str:
    at_end = kind.of_usage and capabilities.usage == "at_end"
    return " once the run is over and its usage known" if at_end else ""


def _loosened(policy: Policy, work: Work) -> Iterator[PreflightFinding]:
    """The attempts to weaken a locked policy; they have no effect."""
    for attempt in loosened(policy, work.spend):
        limit = attempt.name in LIMITS
        yield finding(
            "loosened_limit" if limit else "loosened",
            (attempt.policy, attempt.name),
            f"`{attempt.name}: {attempt.given}` has no effect: `{attempt.locked_policy}` is locked"
            f"{' at' if limit else ', and there it is'} {attempt.holds}",
            suggestion=f"stay at or below {attempt.holds}" if limit else "",
        )


def _approvers(policy: Policy) -> Iterator[PreflightFinding]:
    """Approvers of several policies, who have nobody in common: each call that is to be approved is denied."""
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
    """`unpriced: reject`, and the run's cost can't be known."""
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
    """The problems in the budgets of a stack, and the effects of those budgets."""
    for entry in effective_budgets(policy):
        about = (entry.policy, entry.budget.name)
        if entry.budget.max == 0 and not entry.budget.kind.zero_ok:
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
    if _uncounted(entry.budget.kind, capabilities):
        hint = "give a budget of calls or time as well"
        return finding("uncounted_budget", about, f"{budget} {_NOT_HELD}", suggestion=hint)
    if entry.budget.kind.at_once and entry.action != "warn":
        return finding("budget_effect", about, f"{budget}, once used up, lets no run start until one ends")
    ungated = entry.action == "deny" and capabilities.gate != "all"
    does = UNGATED_BUDGET if ungated else BUDGET_EFFECTS[entry.action]
    return finding("budget_effect", about, f"{budget}, once used up, {does}{_late(entry.budget.kind, capabilities)}")


COVERS: dict[Of, tuple[Of, ...]] = {
    "started": ("started", "completed"),
    "completed": ("completed",),
    "attempted": ("started", "completed"),
}
"""The kinds of counts that a cap of each kind also keeps down; a denied attempt is still an attempt."""


class Want(NamedTuple):
    """A clause's obligation, and the kinds of calls that may fulfil it."""

    clause: Clause
    owed: Obligation
    kinds: frozenset[CallClass]


class Quota(NamedTuple):
    """Of these kinds no more calls are allowed; `words` say it. `lasting` unless another run lifts it."""

    id: str
    words: str
    most: int
    of: Of
    kinds: frozenset[CallClass]
    lasting: bool = True


def quota_findings(policy: Policy, clauses: Sequence[Clause], possible: Saturation) -> Iterator[PreflightFinding]:
    """The demands that the stack's caps prevent, each with the first cap that does."""
    kinds = possible.kinds
    if not kinds.names.complete:
        return
    wants = list(_wants(clauses, possible))
    reported: set[str] = set()
    for quota in (*_quotas(clauses, kinds), *_limits(policy, kinds)):
        possible.kinds.work.spend(1 + sum(min(len(w.kinds), len(quota.kinds)) for w in wants))
        kept = [want for want in wants if want.owed.of in COVERS[quota.of] and want.kinds <= quota.kinds]
        crowd = _crowd([want for want in kept if want.clause.id not in reported], quota.most)
        if crowd:
            reported.update(want.clause.id for want in crowd)
            yield _finding(crowd, quota)


def _crowd(wants: list[Want], most: int) -> list[Want]:
    """One demand beyond the cap, or several that exceed it together because no call serves two of them."""
    chosen: list[Want] = []
    for want in sorted(wants, key=lambda want: -want.owed.least):
        if all(want.kinds.isdisjoint(other.kinds) for other in chosen):
            chosen.append(want)
            if sum(each.owed.least for each in chosen) > most:
                return chosen
    return []


def _finding(crowd: list[Want], quota: Quota) -> PreflightFinding:
    wanted = " and ".join(f"{names(want.owed.tool)} must be called {_often(want.owed.least)}" for want in crowd)
    they = ", and together they" if len(crowd) > 1 else " and"
    of_run = "" if quota.lasting else " in one run"
    return finding(
        "never_satisfied",
        crowd[0].clause,
        f"{wanted}{they} may be called at most {times(quota.most)}{of_run} ({quota.words})",
        witness=(*(want.clause.words() for want in crowd), quota.words),
        suggestion=f"raise `{quota.id}`, or ask for less",
        severity="refuse" if quota.lasting else "report",
    )


def _often(least: int) -> str:
    return times(least) if least > 1 else "at least once"


def _wants(clauses: Iterable[Clause], possible: Saturation) -> Iterator[Want]:
    for clause in clauses:
        owed = clause.profile.obligation
        if owed is not None and owed.after is None and clause.binds:
            reached = {name for reach in possible.kinds.reaches(owed.tool, clause.scope) for name in reach.names}
            possible.kinds.work.spend(len(possible.found))
            if meant := frozenset(kind for kind in possible.found if kind.name in reached):
                yield Want(clause, owed, meant)


def _quotas(clauses: Iterable[Clause], kinds: CallClasses) -> Iterator[Quota]:
    for clause in clauses:
        if not clause.binds or clause.key is not None:
            continue
        for cap in clause.profile.caps:
            if cap.within is None:
                capped = frozenset.intersection(*(kinds.of(tool, clause) for tool in cap.tools))
                for some in [frozenset({kind}) for kind in capped] if cap.each else [capped]:
                    yield Quota(clause.id, clause.words(), cap.most, cap.of, some)


MOST_FOLLOWED = 16
"""The largest limit on calls that orders of calls are compared with."""


def limits_as_rules(policy: Policy) -> Iterator[Clause]:
    """The limits on the calls of a session, each as the rule that says the same."""
    for entry in _denying_calls(policy):
        if entry.limit.scope == "session" and 0 < entry.limit.max <= MOST_FOLLOWED:
            rule = MaxCalls(tool="*", max=int(entry.limit.max))
            place = ("limits", 0)
            yield Clause(entry.name, entry.policy, 0, rule, entry.action, NameScope(), place, rule.profile())


def _denying_calls(policy: Policy) -> Iterator[LimitEntry]:
    """The limits on calls that deny or cancel."""
    for entry in effective_limits(policy):
        if entry.kind.projected == "call" and STRICTNESS[entry.action] >= STRICTNESS["deny"]:
            yield entry


def _limits(policy: Policy, kinds: CallClasses) -> Iterator[Quota]:
    for entry in _denying_calls(policy):
        most, scope = int(entry.limit.max), entry.limit.scope
        text = f"`{entry.name}`: {entry.limit.max:g} in one {scope}"
        yield Quota(entry.name, text, most, "started", frozenset(kinds.all), scope == "session" or most == 0)
