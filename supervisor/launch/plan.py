"""What is settled before a run is launched: the merged policy, compiled, checked, and the launch options."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from anyio import to_thread

from proctor.policies.errors import PolicyError
from proctor.policies.policy import Policy, members_of
from proctor.policies.rules.petri_net import Mappers, OnResults, Validators

from ..errors import UsageError
from ..ports.adapter import Adapter, LaunchOptions
from ..run.adapter_calls import capabilities_of, launch_options

if TYPE_CHECKING:
    from proctor.policies import Capabilities, Findings
    from proctor.policies.analysis.findings import PreflightFinding


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A policy ready to judge runs of one adapter; shared between runs.

    `findings` is what preflight reports without refusing, `warns` whether a limit has a `warn_at`,
    `written` the policies as the record of a run keeps them, `held` what must live as long as the plan.
    """

    policy: Policy
    compiled: Any
    options: LaunchOptions
    findings: tuple[Any, ...] = ()
    warns: bool = True
    written: list[dict[str, Any]] = []
    held: tuple[Any, ...] = ()


NO_POLICY = Policy(name="no policy")
"""What a run under no policy is recorded with: it denies nothing."""


def policies_given(policies: object, policy: object) -> tuple[Policy, ...]:
    """The policies a caller gave, in one of the two ways; `()` says on purpose that there is none.

    Raises UsageError where none is given, or both ways are used, PolicyError for what is not a policy.
    """
    if policies is None and policy is None:
        raise UsageError("no policy was given; use `policies=[...]`, or `policies=()` for a run under no policy")
    if policies is not None and policy is not None:
        raise UsageError("both `policies` and `policy` were given; put all of them into `policies=[...]`")
    if policies == () and isinstance(policies, tuple):
        return (NO_POLICY,)
    given: Any = policies if policies is not None else [policy]
    if isinstance(given, Policy):
        raise PolicyError("`policies` is one policy; use `policies=[policy]` or `policy=policy`")
    if isinstance(given, (str, bytes, dict)) or not isinstance(given, Sequence):
        raise PolicyError(f"`policies` is a value of type `{type(given).__name__}`, not a list of policies")
    if not given:
        raise PolicyError("`policies` is an empty list; write `policies=()` where a run under no policy is meant")
    for n, item in enumerate(given):
        if not isinstance(item, Policy):
            raise PolicyError(f"`policies[{n}]` is a value of type `{type(item).__name__}`, not a policy")
    return tuple(given)


class NetHooks(msgspec.Struct, frozen=True):
    """What a caller attaches to nets, by their names."""

    validators: Validators = {}
    on_results: OnResults = {}
    mappers: Mappers = {}

    def ids(self) -> tuple[object, ...]:
        """The same for the same functions on the same nets."""
        of_each = (self.validators, self.on_results, self.mappers)
        return tuple((n, name, id(hooks[name])) for n, hooks in enumerate(of_each) for name in sorted(hooks))


def hooks_given(validators: object, on_results: object, mappers: object) -> NetHooks:
    """The hooks a caller gave. Raises UsageError for anything that is not a mapping from names."""
    each = {"validators": validators, "on_results": on_results, "mappers": mappers}
    for name, given in each.items():
        if given is not None and not (isinstance(given, Mapping) and all(isinstance(net, str) for net in given)):
            raise UsageError(f"`{name}` is not a mapping from the names of nets to functions")
    return NetHooks(**{name: dict(given or {}) for name, given in each.items()})  # type: ignore[call-overload]


QUICK_STEPS = 200_000
"""How much preflight looks at on the event loop; a policy that needs more is checked in a thread."""


async def _checked(merged: Policy, capabilities: Capabilities) -> Findings:
    """What preflight finds, without keeping other runs waiting; a start that is cancelled ends it."""
    from proctor.policies import preflight

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
    """Merge, check, compile. Raises PolicyViolationError when preflight refuses: the adapter is not called.

    `answerable` is false where nobody can answer a request for approval.
    """
    from proctor.policies import compile_policy, merge_policies
    from proctor.policies.stack.merge import effective_limits

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
        warns=any(entry.limit.warn_at is not None for entry in effective_limits(merged)),
        written=written(members_of(merged)),
        held=(adapter, hooks, *policies),
    )


def _without_mapped(findings: Findings, stack: Policy, hooks: NetHooks) -> Findings:
    """What preflight finds, but for unknown tools of a net with a mapper: that may give calls their names."""
    from proctor.policies.analysis.findings import Findings
    from proctor.policies.rules.petri_net import Net
    from proctor.policies.stack.clauses import clauses_of

    nets = ((each, each.record) for each in clauses_of(stack) if hooks.mappers)
    mapped = {(each.policy, each.id) for each, net in nets if isinstance(net, Net) and net.name in hooks.mappers}
    return Findings(f for f in findings if f.code != "unknown_tool" or (f.policy, f.rule) not in mapped)


def _unanswerable(stack: Policy) -> Iterator[PreflightFinding]:
    """For each policy what asks for an approval, where nobody can give one."""
    from proctor.policies.analysis.findings import PreflightFinding
    from proctor.policies.rules.petri_net import Net
    from proctor.policies.stack.clauses import clauses_of
    from proctor.policies.stack.merge import effective_budgets, effective_limits

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
            message=f"nobody can answer a request for approval here: the calls these ask about are refused: {named}",
            policy=policy,
            witness=tuple(ids),
            suggestion="pass an `approver`, or a `store` that somebody else answers through",
        )


def written(policies: Sequence[Policy]) -> list[dict[str, Any]]:
    """The policies as JSON has them; `parse_policies` reads them back, save what they hold of Python."""
    encoded = msgspec.json.encode(list(policies), enc_hook=_named)
    read: list[dict[str, Any]] = msgspec.json.decode(encoded)
    return read


def _named(function: object) -> str:
    """What a policy holds of Python itself (a check) is recorded by its name."""
    return getattr(function, "__qualname__", None) or type(function).__qualname__


class Plans:
    """Plans made before, so that many runs under the same policies share one compiled policy."""

    KEPT = 64

    def __init__(self, *, answerable: bool = True) -> None:
        self._answerable = answerable
        self._plans: dict[tuple[object, ...], Plan] = {}

    async def get(self, adapter: Adapter, policies: tuple[Policy, ...], hooks: NetHooks | None = None) -> Plan:
        """The plan for these very objects, which it holds, so that ids stay theirs, and what the adapter can do."""
        hooks = hooks or NetHooks()
        key = (id(adapter), capabilities_of(adapter), *map(id, policies), *hooks.ids())
        plan = self._plans.get(key)
        if plan is None:
            plan = await make_plan(adapter, policies, hooks, answerable=self._answerable)
            while len(self._plans) >= self.KEPT:
                del self._plans[next(iter(self._plans))]
            self._plans[key] = plan
        return plan
