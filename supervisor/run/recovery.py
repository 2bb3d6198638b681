"""Ends runs that no actor runs: those that never started, and those whose owner is gone."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import anyio

from proctor.policies import compile_policy, merge_policies, parse_policies
from proctor.policies.errors import PolicyError
from proctor.policies.events import Event, RunStarted, TokenUsageUpdated
from proctor.policies.events.run_context import Usage
from proctor.policies.limits import BUDGETS
from proctor.policies.monitor.monitor import Monitor
from proctor.policies.policy import Policy

from ..arguments import RecordBounds
from ..errors import OwnerLostError, StoreError
from ..machine import interface
from ..machine.machine import RunMachine
from ..machine.run_state import RunIdentity
from ..ports.adapter import EndOrphans
from ..ports.processes import enter, leave, process_mark
from ..ports.store import EventLog, RunRegistry, Store, closing
from ..ports.stored_types import ENDING, Owner, RunInfo
from ..store.invariants import create_next
from .journal import ANSWER_S
from .tasks import SelfCancelledError, call_isolated, call_within, store_cancelled, store_timeout

LEASE_S = 30.0
"""How long after its last heartbeat an owner counts as gone, if its process cannot be seen from here."""
LEAVE_S = 5.0
"""How long a store may take to release an owner."""
T = TypeVar("T")
_ORPHAN = Policy(name="orphan")
_UNBOUNDED = RecordBounds(**dict.fromkeys(RecordBounds.__struct_fields__, sys.maxsize))
"""What is recorded here ends the run; its owner may have had larger bounds than the usual."""


@asynccontextmanager
async def passing_owner(store: RunRegistry) -> AsyncIterator[Owner]:
    """A temporary owner. A start waits while its session is claimed by one. Raises StoreError."""
    owner = enter(ENDING)
    try:
        owner = await answered(partial(store.register, owner, lease_s=LEASE_S))
        yield owner
    finally:
        await leave_store(store, owner)


async def answered(call: Callable[[], Awaitable[T]]) -> T:
    """The store's answer to a call. Raises StoreError, also if it does not answer, or cancels the call by itself."""
    try:
        return await call_within(ANSWER_S, call)
    except TimeoutError:
        raise store_timeout(ANSWER_S) from None
    except SelfCancelledError as error:
        raise store_cancelled() from error


async def leave_store(store: RunRegistry, owner: Owner) -> None:
    """Release an owner, if it was registered: its runs that are not over are lost at once. Errors of the store are
    ignored, and so is one that does not answer.
    """
    leave(owner)
    if owner.epoch:
        with anyio.CancelScope(shield=True), suppress(Exception):
            await call_within(LEAVE_S, partial(store.release, owner.epoch))


async def with_lease(store: RunRegistry, epoch: int, claim: Callable[[], Awaitable[T]]) -> T:
    """Claim something, again after a renewal if that owner's lease has run out: it had many runs to end, or its
    process was suspended. Raises StoreError.
    """
    try:
        return await claim()
    except StoreError as error:
        if error.kind != "fenced":
            raise
        await store.renew(epoch, lease_s=LEASE_S)
        return await claim()


async def end_lost_runs(
    store: Store, *, end_orphans: EndOrphans | None = None, session_id: str | None = None
) -> list[RunInfo]:
    """End the lost runs of a store, or of one session; returns those that this call ended.

    `end_orphans` ends what a run left running on this machine. Created runs that were never started stay. Raises
    StoreError; what concerns one run only if no other was ended.
    """
    lost = await answered(store.lost_runs)
    mine = [run for run in lost if run.status == "lost" and session_id in (None, run.session_id)]
    if not mine:
        return []
    async with passing_owner(store) as owner:
        end = partial(end_lost, store, epoch=owner.epoch, end_orphans=end_orphans)
        return await each_ended(mine, end)


_AT_ONCE = 16


async def each_ended(
    runs: Sequence[RunInfo], end: Callable[[RunInfo], Awaitable[bool]], *, raises: bool = True
) -> list[RunInfo]:
    """End runs with `end`, those of several sessions at once; returns the runs that it ended. An error about one run
    (its record cannot be read, its processes cannot be ended) is raised only if no run was ended, and only with
    `raises`; any other StoreError at once.
    """
    sessions: dict[str, list[RunInfo]] = {}
    for run in runs:
        sessions.setdefault(run.session_id, []).append(run)
    left = iter(sessions.values())
    ended: set[str] = set()
    of_store: Exception | None = None
    of_run: Exception | None = None

    async def end_some() -> None:
        nonlocal of_store, of_run
        for run in chain.from_iterable(left):
            try:
                if await end(run):
                    ended.add(run.run_id)
            except Exception as error:
                if _is_of_store(error):
                    of_store = of_store or error
                    tasks.cancel_scope.cancel()
                    return
                of_run = error

    async with anyio.create_task_group() as tasks:
        for _ in range(min(_AT_ONCE, len(sessions))):
            tasks.start_soon(end_some)
    if of_store is not None:
        raise of_store
    if of_run is not None and raises and not ended:
        raise of_run
    return [run for run in runs if run.run_id in ended]


def _is_of_store(error: Exception) -> bool:
    return isinstance(error, StoreError) and error.kind != "corrupt"


async def end_lost(store: Store, run: RunInfo, *, epoch: int, end_orphans: EndOrphans | None = None) -> bool:
    """End a run whose owner is gone, or that has none; False if another process does. Raises StoreError.

    If its spec asks for a retry, that run is created first, unless the run is to be cancelled.
    """
    claimed = await _claimed(store, run, epoch, lost=True)
    if claimed is None:
        return False
    await create_next(store, run)
    evidence = {}
    if end_orphans is not None:
        mark = process_mark(run.run_id, (await store.place()).store_id)
        evidence = await call_isolated(partial(end_orphans, mark))
    lost = interface.OwnerLost(now_ms=_now_ms(), error=lost_error(run.owner, evidence))
    return await _ended(store, claimed, epoch, lost)


def lost_error(owner: Owner | None, evidence: dict[str, Any] | None = None) -> OwnerLostError:
    """The error of a run whose owner is gone, or that has none."""
    return OwnerLostError(f"the run was lost: {whose(owner)}", details=evidence)


def whose(owner: Owner | None) -> str:
    """The owner that is gone, as text."""
    if owner is None:
        return "no supervisor owns it"
    return f"its {'client' if owner.is_client else 'supervisor'}, {owner}, is gone"


async def end_unowned(store: Store, run: RunInfo, *, epoch: int, reason: str, by: str = "") -> bool:
    """End a run that no supervisor owns, on command; False if one owns it by now. Raises StoreError.

    A client's hooks then find that the run is over, or another owner's.
    """
    if run.owner is not None and run.owner.is_client:
        await store.release(run.owner.epoch)
    claimed = await _claimed(store, run, epoch, lost=run.status != "created")
    cancel = interface.CancelAsked(now_ms=_now_ms(), reason=reason, person=by)
    return claimed is not None and await _ended(store, claimed, epoch, cancel)


async def end_without_owner(
    store: Store, run: RunInfo, *, epoch: int, reason: str, by: str = "", end_orphans: EndOrphans | None = None
) -> bool:
    """End a run that no live owner ends, on command: one that is lost by `end_lost`, any other by `end_unowned`."""
    if run.status == "lost":
        return await end_lost(store, run, epoch=epoch, end_orphans=end_orphans)
    return await end_unowned(store, run, epoch=epoch, reason=reason, by=by)


async def _claimed(store: Store, run: RunInfo, epoch: int, *, lost: bool) -> RunInfo | None:
    try:
        return await with_lease(store, epoch, partial(store.claim_run, run.run_id, epoch=epoch, lost=lost))
    except StoreError as error:
        if error.kind in ("claimed", "run_over", "session_busy", "started"):
            return None
        raise


async def fail_untried(store: Store, run: RunInfo, *, epoch: int, reason: str) -> None:
    """End a claimed run as failed instead of trying it again, unless another owner has it. Raises StoreError."""
    error = OwnerLostError(reason, details={"attempts": run.attempts})
    await _ended(store, run, epoch, interface.OwnerLost(now_ms=_now_ms(), error=error))


async def _ended(store: Store, run: RunInfo, epoch: int, cause: interface.CancelAsked | interface.OwnerLost) -> bool:
    events: list[Event] = [event async for event in store.read(run.session_id, run_id=run.run_id)]
    identity = RunIdentity(run_id=run.run_id, session_id=run.session_id, provider=run.provider)
    monitor = _counter(events)
    if any(isinstance(event, TokenUsageUpdated) and event.scope == "cumulative" for event in events):
        await _observe_earlier_usage(store, run.session_id, events[0].seq, monitor)
    machine = RunMachine.resume(identity, monitor, events, bounds=_UNBOUNDED)
    machine.handle(cause)
    machine.handle(interface.AdapterEnded(now_ms=cause.now_ms))
    try:
        await store.settle(run.run_id, used_by(run, events, monitor.usage), epoch=epoch)
        await store.append(machine.drain_record(), epoch=epoch)
    except StoreError as error:
        if error.kind in ("fenced", "run_over"):  # somebody took it over meanwhile
            return False
        raise
    return True


async def _observe_earlier_usage(store: EventLog, session_id: str, before: int, monitor: Monitor) -> None:
    """What the session's earlier runs used, which a sum that an agent reports may include."""
    async with closing(store.read(session_id)) as events:
        async for event in events:
            if event.seq >= before:
                return
            if isinstance(event, RunStarted | TokenUsageUpdated):
                monitor.observe(event)


def used_by(run: RunInfo, events: Sequence[Event], usage: Usage) -> dict[str, float]:
    """A run's use of shared budgets, by its recorded events; its time is that of the last of them."""
    figures = [kind.counts for kind in BUDGETS.values() if kind.of_usage]
    last, start = events[-1].at if events else None, run.started_at
    lasted = 0.0 if last is None or start is None else (last - start).total_seconds() * 1000
    used = {name: float(getattr(usage, name)) for name in figures}
    return {"tool_calls": float(run.calls), "duration_ms": max(lasted, 0.0), **used}


def _counter(events: Sequence[Event]) -> Monitor:
    """A monitor without rules: it counts what a run used, by the prices in its event log."""
    starts = [event.metadata.get("policies") or () for event in events if isinstance(event, RunStarted)]
    priced = [policy for policy in starts[-1] if policy.get("prices")] if starts else []
    members = [{"name": policy.get("name"), "prices": policy["prices"]} for policy in priced]
    try:
        stack = merge_policies(parse_policies({"policies": members})) if members else _ORPHAN
    except PolicyError:  # written by another version
        stack = _ORPHAN
    return compile_policy(stack).monitor()


def _now_ms() -> int:
    return int(time.time() * 1000)
