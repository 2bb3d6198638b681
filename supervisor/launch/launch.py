"""Prepares and claims a run: its id, its context, the session's earlier runs, its machine."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any

import anyio
import msgspec

from proctor.policies.analysis.name_checks import missing_context
from proctor.policies.errors import wrong_type
from proctor.policies.events.calls import copied
from proctor.policies.events.run_context import Capabilities, RunContext, portable
from proctor.policies.monitor.monitor import Monitor

from ..arguments import Continuation, check_named, check_order, check_text, recordable
from ..errors import StartsBlockedError, StoreError, StoreErrorKind, UsageError
from ..machine.event_factory import PriorSession
from ..machine.interface import AddedMetadata, Begin
from ..machine.machine import RunMachine
from ..machine.run_state import RunIdentity
from ..ports.adapter import Adapter, EndOrphans, Launch, LaunchOptions
from ..ports.processes import process_mark
from ..ports.store import POLL_S, CommandQueue, RunRegistry, Store, wait_again
from ..ports.stored_types import NOT_OVER, Owner, RunFilter, RunInfo, block_of
from ..run.actor import RunActor
from ..run.journal import ANSWER_S
from ..run.provider_session import Parent, capabilities_of, end_orphans_of, name_of
from ..run.recovery import LEASE_S, answered, end_lost_runs, end_unowned, with_lease
from ..run.services import Services
from ..run.tasks import DetachedTask
from .history import Continued, continued, read_history, read_transcript
from .plan import Plan


class LaunchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A run to start, by the owner of that epoch, in the store of that id."""

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
    """The record of a run before it starts. Raises UsageError for wrong arguments."""
    check_order(prompt, context, metadata)
    check_named(run_id=run_id, session_id=session_id)
    spec: dict[str, Any] = {"prompt": prompt}
    if metadata:
        spec["metadata"] = recordable("metadata", dict(metadata))
    if context is not None:
        spec["context"] = recordable("context", context)
    return RunInfo(
        run_id=run_id or new_id("run"), session_id=session_id or new_id("ses"), provider=provider, spec=spec
    )


def check_context(info: RunInfo, context: RunContext | None) -> None:
    """Raises UsageError if a created run is executed under another context than it was created with."""
    created = info.spec.get("context")
    if context is not None and created is not None and recordable("context", context) != created:
        raise UsageError(f"run `{info.run_id}` was created with another `context`; leave it out here")


async def launched(request: LaunchRequest, services: Services) -> tuple[RunActor, Begin]:
    """The actor of a run and the input that starts it. Raises UsageError if the session cannot be continued as asked,
    PolicyViolationError if the context lacks a value that a rule needs.
    """
    info, adapter, plan = request.info, request.adapter, request.plan
    can_do = capabilities_of(adapter)
    context = _context(request, can_do)
    missing_context(plan.compiled, context).check()
    monitor: Monitor = plan.compiled.monitor(context)
    past = await read_history(services.store, info.session_id, monitor)
    taken_up = continued(past, request.continuation, can_resume=can_do.resume, provider=name_of(adapter))
    transcript = partial(read_transcript, services.store, info.session_id, past.last_seq)
    metadata = info.spec.get("metadata", {})
    launch = partial(
        Launch,
        run_id=info.run_id,
        session_id=info.session_id,
        prompt=info.spec.get("prompt", ""),
        options=_own_options(plan.options),
        resume=taken_up.resume,
        transcript=await transcript() if taken_up.mode == "replay" else (),
        load_transcript=transcript if taken_up.resume and taken_up.replay else None,
        metadata=metadata,
        narrow=monitor.narrow,
        mark=process_mark(info.run_id, request.store_id),
    )
    machine = RunMachine(
        _identity(info, adapter, can_do, past, context),
        monitor,
        earlier_grants=past.grants,
        model=can_do.model,
        notes=_notes(plan, can_do),
        answerable=services.answerable,
        redactor=services.redactor,
        bounds=services.bounds,
    )
    begin = Begin(
        now_ms=services.clock.now_ms(),
        prompt=info.spec.get("prompt", ""),
        first=not past.created,
        model=can_do.model,
        tools=can_do.offered,
        metadata={**metadata, **_on_record(plan, context, taken_up, can_do)},
    )
    actor = RunActor(
        machine,
        adapter,
        launch,
        services=services,
        epoch=request.epoch,
        parent=_parent(info, plan, context, services) if plan.policy.budgets else None,
        calls_before=past.calls,
    )
    return actor, begin


def _own_options(shared: LaunchOptions) -> LaunchOptions:
    """The options for one run, which its adapter may use up; those of a plan without any are the plan's."""
    return msgspec.structs.replace(shared, options=copied(shared.options)) if shared.options else shared


def _parent(info: RunInfo, plan: Plan, context: RunContext, services: Services) -> Parent:
    return Parent(run_id=info.run_id, services=services, compiled=plan.compiled, context=context)


def _context(request: LaunchRequest, can_do: Capabilities) -> RunContext:
    check_text(prompt=request.info.spec.get("prompt", ""))
    stored = request.info.spec.get("context")
    context = request.context or (msgspec.convert(stored, RunContext) if stored else RunContext())
    fields = {
        "run_id": request.info.run_id,
        "session_id": request.info.session_id,
        "provider": name_of(request.adapter),
        "model": can_do.model or msgspec.UNSET,
        "workspace": can_do.workspace or msgspec.UNSET,
        "home": can_do.home or msgspec.UNSET,
        "shell": can_do.shell or msgspec.UNSET,
    }
    missing = {name: value for name, value in fields.items() if getattr(context, name) is msgspec.UNSET}
    check_text(**{name: value for name, value in missing.items() if value is not msgspec.UNSET})
    for name, value in fields.items():
        given = getattr(context, name)
        if name not in missing and value is not msgspec.UNSET and given is not None and given != value:
            raise UsageError(f"the context's `{name}` is `{given}`, but the run's is `{value}`; leave it out")
    return msgspec.structs.replace(context, **missing)


def _identity(
    info: RunInfo, adapter: Adapter, can_do: Capabilities, past: PriorSession, context: RunContext
) -> RunIdentity:
    return RunIdentity(
        run_id=info.run_id,
        session_id=info.session_id,
        provider=name_of(adapter),
        gates_all=can_do.gate == "all",
        turns_before=past.turns,
        events_before=past.last_seq,
        user=context.user or None,
    )


def _notes(plan: Plan, can_do: Capabilities) -> Mapping[str, Any]:
    """Notes on the plan for the report: the gate, rules that the launch options could not express, and findings."""
    notes: dict[str, Any] = {}
    if plan.options.unexpressed:
        notes["unexpressed"] = list(plan.options.unexpressed)
    if plan.findings:
        notes["findings"] = [str(finding) for finding in plan.findings]
    return {**_gate_note(can_do.gate), **notes} if notes else _gate_note(can_do.gate)


@cache
def _gate_note(gate: str) -> Mapping[str, Any]:
    """Shared by all runs, to save memory."""
    return {"gate": gate}


def _on_record(plan: Plan, context: RunContext, taken_up: Continued, can_do: Capabilities) -> AddedMetadata:
    record: AddedMetadata = {
        "gate": can_do.gate,
        "policy": plan.policy.name,
        "policies": plan.written,
        "context": msgspec.to_builtins(context),
    }
    if tools := portable(can_do.table):
        record["portable_tools"] = tools
    if taken_up.mode:
        record["continuation"] = taken_up.mode
    return record


ENDED_S = LEASE_S + 10.0
"""How long a start waits for the end of a lost run of its session."""

_TRIES = 10
_MOST = 100
_NOT_FREE: tuple[StoreErrorKind, ...] = ("claimed", "session_busy", "started", "run_over", "no_run")
_REFUSED: tuple[StoreErrorKind, ...] = (*_NOT_FREE, "run_exists", "fenced", "bad_record")
"""Errors after which the store has not stored the run."""


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """A claimed run: its stored record, its actor, and the input that starts the actor."""

    info: RunInfo
    actor: RunActor
    begin: Begin


@asynccontextmanager
async def claimed(request: LaunchRequest, services: Services, *, created: bool) -> AsyncIterator[Claimed]:
    """Create and claim a requested run, or, with `created`, claim the stored one. A run that was created here is
    withdrawn if the block raises.

    Raises UsageError if another owner has it, or its session, StartsBlockedError if starts are blocked.
    """
    store = services.store
    actor, begin = await launched(request, services)
    await answered(partial(_check_unblocked, store, request, begin))
    info = await _claim(request, services, created=created)
    try:
        for _ in range(_TRIES):
            if await answered(partial(_last_seq, store, request, begin)) == actor.seq:
                break
            actor, begin = await launched(
                request, services
            )  # somebody recorded something before the session was ours
        else:
            raise StoreError(f"session `{info.session_id}` has more events than can be read", kind="corrupt")
        yield Claimed(info=info, actor=actor, begin=begin)
    except BaseException:
        if not created:
            await _release_claim(store, info, request.epoch)
        raise


async def _last_seq(store: Store, request: LaunchRequest, begin: Begin) -> int:
    """The latest seq of a claimed run's session, after a check for freezes: a command from here on finds the run."""
    await _check_unblocked(store, request, begin)
    return await store.last_seq(request.info.session_id)


async def _check_unblocked(store: CommandQueue, request: LaunchRequest, begin: Begin) -> None:
    """Raises StartsBlockedError if starts of runs like this are frozen."""
    context = begin.metadata["context"]
    about = {"tenant": context.get("tenant"), "labels": context.get("labels")}
    run = request.info
    block = block_of(await store.blocks(), run_id=run.run_id, session_id=run.session_id, **about)
    if block is not None:
        raise StartsBlockedError(block)


async def claim_created(store: Store, info: RunInfo, *, epoch: int, end_orphans: EndOrphans | None = None) -> RunInfo:
    """Claim a created run, unless this owner has it; lost runs of its session are ended first. Raises UsageError if
    another owner has it, or its session.
    """
    if info.owner is not None and info.owner.epoch == epoch:
        return info
    return await _once_free(partial(store.claim_run, info.run_id, epoch=epoch), store, info, epoch, end_orphans)


async def _once_free(
    claim: Callable[[], Awaitable[RunInfo]], store: Store, info: RunInfo, epoch: int, end_orphans: EndOrphans | None
) -> RunInfo:
    for _ in range(_TRIES):
        try:
            return await with_lease(store, epoch, claim)
        except StoreError as error:
            if error.kind not in _NOT_FREE:
                raise
            if error.kind != "session_busy" or not await _freed(store, info.session_id, end_orphans):
                raise UsageError(str(error)) from error
            busy = error
    raise UsageError(str(busy)) from busy


async def _freed(store: Store, session_id: str, end_orphans: EndOrphans | None) -> bool:
    """End the session's lost run, or wait until another process has; False if another run keeps the session."""
    token = 0
    with anyio.move_on_after(ENDED_S):
        while owners := await _busy_owners(store, session_id):
            if not all(owner.gone or owner.is_ending for owner in owners):
                return False
            if not await end_lost_runs(store, end_orphans=end_orphans, session_id=session_id):
                token = await wait_again(store, token)
        return True
    return False


async def _busy_owners(store: RunRegistry, session_id: str) -> list[Owner]:
    """The owners of runs that keep a session busy: running, lost, or about to start."""
    runs = await store.runs(limit=_MOST, session_id=session_id, where=RunFilter(status=NOT_OVER))
    return [run.owner for run in runs if run.owner and not (run.status == "created" and run.owner.gone)]


async def _claim(request: LaunchRequest, services: Services, *, created: bool) -> RunInfo:
    store, end_orphans = services.store, end_orphans_of(request.adapter)
    if created:
        return await claim_created(store, request.info, epoch=request.epoch, end_orphans=end_orphans)
    return await _once_free(partial(_create, services, request), store, request.info, request.epoch, end_orphans)


async def _create(services: Services, request: LaunchRequest) -> RunInfo:
    """Create and claim a run. A cancel waits for the store's answer. If anything is raised after the store may have
    stored the run, its claim is released.
    """
    store = services.store
    shown = services.redactor.redact(request.info, request.info.session_id)
    info = msgspec.structs.replace(shown, created_at=datetime.now(UTC))
    try:
        with anyio.CancelScope(shield=True):
            stored: object = await answered(partial(store.create_run, info, epoch=request.epoch))
        if not isinstance(stored, RunInfo):
            raise StoreError(wrong_type("the run from `create_run` of the store", stored))
        await anyio.lowlevel.checkpoint_if_cancelled()
    except BaseException as error:
        if not (isinstance(error, StoreError) and error.kind in _REFUSED):
            await _release_claim(store, info, request.epoch)
        raise
    return stored


async def _release_claim(store: Store, info: RunInfo, epoch: int) -> None:
    """Withdraw a claimed run that will not start, so that nobody waits for it."""

    async def withdrawn() -> None:
        run = await store.run(info.run_id)
        if run is not None and run.is_claimed_by(epoch):
            await end_unowned(store, run, epoch=epoch, reason="its start was given up")

    await _retry_shielded(withdrawn)


async def let_go(store: RunRegistry, run_id: str, *, epoch: int) -> None:
    """Release a created run that this owner has not started: another may start it, or end it."""
    await _retry_shielded(partial(store.release_run, run_id, epoch=epoch))


async def _retry_shielded(do: Callable[[], Awaitable[None]]) -> None:
    """Do it even if the caller is cancelled, and retry a few times if the store fails. If the store has not answered
    after `ANSWER_S`, it goes on and is not waited for.
    """

    async def do_it() -> None:
        for _ in range(_TRIES):
            with suppress(Exception):
                return await do()
            await anyio.sleep(POLL_S)

    task = DetachedTask(do_it)
    with anyio.move_on_after(ANSWER_S, shield=True):
        await task.done.wait()
