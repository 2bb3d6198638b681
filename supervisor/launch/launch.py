"""Everything between "run this" and a run that goes on: ids, context, the session's past, the machine."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec

from proctor.policies.preflight.checks.missing_context import missing_context
from proctor.policies.stream.calls import Capabilities, RunContext
from proctor.policies.stream.tools import portable

from ..arguments import check_named, check_order, recordable
from ..errors import UsageError
from ..machine.boundary.inputs import Begin
from ..machine.boundary.judge import Judge
from ..machine.machine import RunMachine
from ..machine.run_state import RunIdentity
from ..ports.adapters import Adapter, GateAnswer, Launch, RunInfo
from ..ports.processes import process_mark
from ..run.actor import RunActor
from ..run.foreign.agents import capabilities_of
from ..run.foreign.lineage import Parent
from ..run.services import Services
from .history import Continuation, Continued, History, continued, read_history, read_transcript
from .plan import Plan


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A run that is to be started, by the owner of that epoch, in the store of that id."""

    adapter: Adapter
    plan: Plan
    info: RunInfo
    context: RunContext | None = None
    continuation: Continuation = "auto"
    epoch: int = 0
    store_id: str = ""


def new_id(kind: str) -> str:
    """A fresh id of a run or a session."""
    return f"{kind}_{uuid.uuid4().hex}"


def run_info(
    prompt: str,
    *,
    run_id: str | None = None,
    session_id: str | None = None,
    provider: str = "",
    context: RunContext | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> RunInfo:
    """What is stored of a run before it starts. Raises UsageError for arguments that make no sense."""
    check_order(prompt, context, metadata)
    check_named(run_id=run_id, session_id=session_id)
    spec: dict[str, Any] = {"prompt": prompt}
    if metadata:
        spec["metadata"] = recordable("metadata", dict(metadata))
    if context is not None:
        spec["context"] = recordable("context", context)
    return RunInfo(
        run_id=run_id or new_id("run"),
        session_id=session_id or new_id("ses"),
        provider=provider,
        spec=spec,
    )


def check_context(info: RunInfo, context: RunContext | None) -> None:
    """Raises UsageError where a created run is executed for somebody else than it was created for."""
    created = info.spec.get("context")
    if context is not None and created is not None and recordable("context", context) != created:
        raise UsageError(f"run `{info.run_id}` was created with another `context`; leave it out here")


async def launched(order: Order, services: Services) -> tuple[RunActor, Begin]:
    """The actor of a run and what starts it. Raises UsageError when the session cannot be continued
    so, PolicyViolationError when the context leaves out what a rule asks for.
    """
    info, adapter, plan = order.info, order.adapter, order.plan
    can_do = capabilities_of(adapter)
    context = _context(order, can_do)
    missing_context(plan.policy, context).check()
    judge: Judge = plan.compiled.monitor(context)
    history = await read_history(services.store, info.session_id, judge)
    taken_up = continued(history, order.continuation, can_resume=can_do.resume, provider=adapter.name)
    transcript = partial(read_transcript, services.store, info.session_id, history.past.last_seq)
    metadata = info.spec.get("metadata", {})
    launch = Launch(
        run_id=info.run_id,
        session_id=info.session_id,
        prompt=info.spec.get("prompt", ""),
        gate=_closed_gate,
        options=plan.options,
        resume=taken_up.resume,
        transcript=await transcript() if taken_up.way == "replay" else (),
        retell=transcript if taken_up.resume and taken_up.replay else None,
        metadata=metadata,
        narrow=judge.narrow,
        mark=process_mark(info.run_id, order.store_id),
    )
    machine = RunMachine(
        _identity(info, adapter, can_do, history, context),
        judge,
        approval=plan.compiled.approval,
        earlier_grants=history.past.grants,
        model=can_do.model,
        notes=_notes(plan, can_do),
        answerable=services.answerable,
        warns=plan.warns,
        clocked=plan.compiled.limits.has_clocks,
        budgets=judge.budgets,
        redactor=services.redactor,
        messages=services.messages,
    )
    begin = Begin(
        now_ms=services.clock.now_ms(),
        prompt=launch.prompt,
        first=not history.created,
        model=can_do.model,
        tools=can_do.offered,
        metadata={**metadata, "gate": can_do.gate, **_on_record(plan, context, taken_up, can_do)},
    )
    passes_on = {"compiled": plan.compiled, "context": context}
    parent = Parent(run_id=info.run_id, store=services.store, **passes_on) if plan.policy.budgets else None
    actor = RunActor(
        machine, adapter, launch, services=services, epoch=order.epoch, parent=parent, calls_before=history.past.calls
    )
    return actor, begin


async def _closed_gate(call: object) -> GateAnswer:
    """The gate before the actor puts its own in place."""
    return GateAnswer(allowed=False, stop=True)


def _context(order: Order, can_do: Capabilities) -> RunContext:
    check_order(order.info.spec.get("prompt", ""), order.context)
    stored = order.info.spec.get("context")
    context = order.context or (msgspec.convert(stored, RunContext) if stored else RunContext())
    fields = {
        "run_id": order.info.run_id,
        "session_id": order.info.session_id,
        "provider": order.adapter.name,
        "model": can_do.model or msgspec.UNSET,
        "workspace": can_do.workspace or msgspec.UNSET,
        "home": can_do.home or msgspec.UNSET,
        "shell": can_do.shell or msgspec.UNSET,
    }
    missing = {name: value for name, value in fields.items() if getattr(context, name) is msgspec.UNSET}
    for name, value in fields.items():
        given = getattr(context, name)
        if name not in missing and value is not msgspec.UNSET and given is not None and given != value:
            raise UsageError(f"the context's `{name}` is `{given}`, but the run's is `{value}`; leave it out")
    return msgspec.structs.replace(context, **missing)


def _identity(
    info: RunInfo, adapter: Adapter, can_do: Capabilities, history: History, context: RunContext
) -> RunIdentity:
    return RunIdentity(
        run_id=info.run_id,
        session_id=info.session_id,
        provider=adapter.name,
        gates_all=can_do.gate == "all",
        turns_before=history.past.turns,
        events_before=history.past.last_seq,
        user=context.user or None,
    )


def _notes(plan: Plan, can_do: Capabilities) -> dict[str, Any]:
    """What the report says of the plan: how far a refusal gets, what the launch options could not express,
    what preflight found.
    """
    notes: dict[str, Any] = {"gate": can_do.gate}
    if plan.options.unexpressed:
        notes["unexpressed"] = list(plan.options.unexpressed)
    if plan.findings:
        notes["findings"] = [str(finding) for finding in plan.findings]
    return notes


def _on_record(plan: Plan, context: RunContext, taken_up: Continued, can_do: Capabilities) -> dict[str, Any]:
    record: dict[str, Any] = {"policy": plan.policy.name, "policies": plan.written}
    record["context"] = msgspec.to_builtins(context)
    if tools := portable(can_do.table):
        record["portable_tools"] = tools
    if taken_up.way:
        record["continuation"] = taken_up.way
    return record
