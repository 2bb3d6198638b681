"""The plan of a run before launch: the merged policy, compiled, checked, and the launch options."""

import threading
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
from anyio import to_thread

from proctor.policies import Capabilities, compile_policy, merge_policies, preflight
from proctor.policies.analysis.findings import Findings, PreflightFinding
from proctor.policies.policy import Policy, members_of
from proctor.policies.rules.petri_net import Net
from proctor.policies.stack.clauses import clauses_of
from proctor.policies.stack.merge import effective_budgets, effective_limits

from ..arguments import NetHooks
from ..ports.adapter import Adapter, LaunchOptions
from ..run.provider_session import capabilities_of, launch_options


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A policy ready to evaluate runs of one adapter; shared between runs.

    `findings` is what preflight reports without rejecting, `written` the policies as a run's record has them, `held`
    what must live as long as the plan.
    """

    policy: Policy
    compiled: Any
    options: LaunchOptions
    findings: tuple[Any, ...] = ()
    written: list[dict[str, Any]] = []
    held: tuple[Any, ...] = ()


QUICK_STEPS = 200_000
"""How many steps of preflight run on the event loop; a policy that needs more is checked in a thread."""


async def _checked(merged: Policy, capabilities: Capabilities) -> Findings:
    """Run preflight without blocking other runs; a cancel of the start ends it."""
    findings = preflight(merged, capabilities, steps=QUICK_STEPS)
    if not findings.unfinished:
        return findings
    stop = threading.Event()
    try:
        check = partial(preflight, merged, capabilities, should_stop=stop.is_set)
        return await to_thread.run_sync(check, abandon_on_cancel=True)
    finally:
        stop.set()


async def make_plan(
    adapter: Adapter, policies: tuple[Policy, ...], hooks: NetHooks, *, answerable: bool = True
) -> Plan:
    """Merge, check and compile. Raises PolicyViolationError if preflight rejects the policies, before the adapter is
    called.

    `answerable`: whether anybody can answer a request for approval.
    """
    merged = merge_policies(list(policies))
    can_do = capabilities_of(adapter)
    findings = _without_mapped(await _checked(merged, can_do), merged, hooks)
    findings.check()
    compiled = compile_policy(
        merged,
        validators=hooks.validators,
        on_results=hooks.on_results,
        mappers=hooks.mappers,
        tools=can_do.judged_by,
    )
    return Plan(
        policy=merged,
        compiled=compiled,
        options=launch_options(adapter, merged),
        findings=(*findings, *(() if answerable else _unanswerable(merged))),
        written=written(members_of(merged)),
        held=(adapter, hooks, *policies),
    )


def _without_mapped(findings: Findings, stack: Policy, hooks: NetHooks) -> Findings:
    """The findings without unknown tools of nets with a mapper, which may map calls to those names."""
    if not hooks.mappers:
        return findings
    nets = ((each, each.record) for each in clauses_of(stack))
    mapped = {(each.policy, each.id) for each, net in nets if isinstance(net, Net) and net.name in hooks.mappers}
    return Findings(f for f in findings if f.code != "unknown_tool" or (f.policy, f.rule) not in mapped)


def _unanswerable(stack: Policy) -> Iterator[PreflightFinding]:
    """For each policy, a finding about its approval requests, because nobody can answer them."""
    found: dict[str, list[str]] = {}
    for clause in clauses_of(stack):
        manual = isinstance(clause.record, Net) and any(t.type == "manual" for t in clause.record.transitions)
        if clause.action == "request_approval" or manual:
            found.setdefault(clause.policy, []).append(clause.id)
    for entry in effective_limits(stack):
        if entry.action == "request_approval":
            found.setdefault(entry.policy, []).append(entry.name)
    for budget in effective_budgets(stack):
        if budget.action == "request_approval":
            found.setdefault(budget.policy, []).append(budget.budget.name)
    for policy, ids in found.items():
        named = ", ".join(f"`{id}`" for id in ids)
        yield PreflightFinding(
            code="unanswerable",
            severity="report",
            message=f"nobody can answer approval requests here, so calls that these ask about are denied: {named}",
            policy=policy,
            witness=tuple(ids),
            suggestion="pass an `approver`, or a `store` in which others can answer",
        )


def written(policies: Sequence[Policy]) -> list[dict[str, Any]]:
    """The policies as JSON, which `parse_policies` reads back except for their Python functions."""
    encoded = msgspec.json.encode(list(policies), enc_hook=_named)
    read: list[dict[str, Any]] = msgspec.json.decode(encoded)
    return read


def _named(function: object) -> str:
    return getattr(function, "__qualname__", None) or type(function).__qualname__


class Plans:
    """Plans made before, so that many runs under the same policies share one compiled policy."""

    KEPT = 64

    def __init__(self, *, answerable: bool = True) -> None:
        self._answerable = answerable
        self._plans: dict[tuple[object, ...], Plan] = {}

    async def get(self, adapter: Adapter, policies: tuple[Policy, ...], hooks: NetHooks) -> Plan:
        """The plan for these very objects, which it keeps, as it knows them by `id()`, and these capabilities."""
        key = (id(adapter), capabilities_of(adapter), *map(id, policies), *hooks.ids())
        plan = self._plans.get(key)
        if plan is None:
            plan = await make_plan(adapter, policies, hooks, answerable=self._answerable)
            while len(self._plans) >= self.KEPT:
                del self._plans[next(iter(self._plans))]
            self._plans[key] = plan
        return plan
