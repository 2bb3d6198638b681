"""A run made its owner's before it starts, on the past that its session really has then."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial

import anyio
import anyio.lowlevel
import msgspec

from ..errors import StartsBlockedError, StoreError, UsageError
from ..machine.boundary.inputs import Begin
from ..ports.adapters import Remains, Store
from ..ports.facts import NOT_OVER, Owner, RunFilter, RunInfo
from ..run.actor import RunActor
from ..run.journal import ANSWER_S
from ..run.orphans import LEASE_S, end_lost_runs, remains_of, withdraw
from ..run.services import Services
from .launch import Order, launched

ENDED_S = LEASE_S + 10.0
"""How long a start waits for the end of a lost run of its session: one that another owner hangs on is taken over."""
LOOK_AGAIN_S = 0.5
_TRIES = 10
_MOST = 100
_NOT_FREE = ("claimed", "session_busy", "started", "run_over", "no_run")


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """A run that is its owner's: as the store has it, its actor and what starts it."""

    info: RunInfo
    actor: RunActor
    begin: Begin


@asynccontextmanager
async def claimed(order: Order, services: Services, *, created: bool) -> AsyncIterator[Claimed]:
    """The run of an order, claimed; `created` says that it is stored already. Left with an error, it is withdrawn.

    Raises UsageError when another owner has it, or its session, StartsBlockedError when starts are blocked.
    """
    store = services.store
    actor, begin = await launched(order, services)
    await _check_unblocked(store, order, begin)
    info = await _claim(order, services, created=created)
    try:
        await _check_unblocked(store, order, begin)  # an order given from here on finds this run
        for _ in range(_TRIES):
            if await store.last_seq(info.session_id) == actor.seq:
                break
            actor, begin = await launched(order, services)  # somebody recorded something before the session was ours
        else:
            raise StoreError(f"session `{info.session_id}` has more events than can be read", kind="corrupt")
        yield Claimed(info=info, actor=actor, begin=begin)
    except BaseException:
        if not created:
            await _give_up(store, info, order.epoch)
        raise


async def _check_unblocked(store: Store, order: Order, begin: Begin) -> None:
    """Raises StartsBlockedError where somebody ordered that runs like this do not start."""
    context = begin.metadata["context"]
    about = {"tenant": context.get("tenant"), "labels": context.get("labels")}
    for block in await store.blocks():
        if block.covers(run_id=order.info.run_id, session_id=order.info.session_id, **about):
            raise StartsBlockedError(block)


async def claim_created(store: Store, info: RunInfo, *, epoch: int, remains: Remains | None = None) -> RunInfo:
    """Claim a created run, unless this owner has it; lost runs of its session are ended first. Raises UsageError when
    another owner has it, or its session.
    """
    if info.owner is not None and info.owner.epoch == epoch:
        return info
    return await _when_free(partial(store.claim_run, info.run_id, epoch=epoch), store, info.session_id, remains)


async def _when_free(
    claim: Callable[[], Awaitable[RunInfo]], store: Store, session_id: str, remains: Remains | None
) -> RunInfo:
    for _ in range(_TRIES):
        try:
            return await claim()
        except StoreError as error:
            if error.kind not in _NOT_FREE:
                raise
            if error.kind != "session_busy" or not await _freed(store, session_id, remains):
                raise UsageError(str(error)) from error
            busy = error
    raise UsageError(str(busy)) from busy


async def _freed(store: Store, session_id: str, remains: Remains | None) -> bool:
    """Whether the session is free: a lost run of it is ended here, or by another owner, which is awaited."""
    token = 0
    with anyio.move_on_after(ENDED_S):
        while owners := await _keepers(store, session_id):
            if not all(owner.gone or owner.is_ending for owner in owners):
                return False
            if not await end_lost_runs(store, remains=remains, session_id=session_id):
                token = await store.wait(token, LOOK_AGAIN_S)
        return True
    return False


async def _keepers(store: Store, session_id: str) -> list[Owner]:
    """Whose runs keep a session: those that go on, or were lost, and one that is about to start."""
    runs = await store.runs(limit=_MOST, session_id=session_id, where=RunFilter(status=NOT_OVER))
    return [run.owner for run in runs if run.owner and not (run.status == "created" and run.owner.gone)]


async def _claim(order: Order, services: Services, *, created: bool) -> RunInfo:
    store, remains = services.store, remains_of(order.adapter)
    if created:
        return await claim_created(store, order.info, epoch=order.epoch, remains=remains)
    return await _when_free(partial(_create, services, order), store, order.info.session_id, remains)


async def _create(services: Services, order: Order) -> RunInfo:
    """A cancelled claim could still be stored: it is awaited, and then given up."""
    stored, store = None, services.store
    with anyio.move_on_after(ANSWER_S, shield=True):
        shown = services.redactor.redact(order.info, order.info.session_id)
        info = msgspec.structs.replace(shown, created_at=datetime.now(UTC))
        stored = await store.create_run(info, epoch=order.epoch)
    if stored is None:
        await _give_up(store, order.info, order.epoch)  # it may have been stored all the same
        raise StoreError(f"the store has not answered for {ANSWER_S:g} seconds")
    try:
        await anyio.lowlevel.checkpoint_if_cancelled()
    except BaseException:
        await _give_up(store, stored, order.epoch)
        raise
    return stored


async def _give_up(store: Store, info: RunInfo, epoch: int) -> None:
    """A run of this owner that will not start is withdrawn, so that nobody waits for it."""
    with anyio.move_on_after(ANSWER_S, shield=True), suppress(Exception):
        run = await store.run(info.run_id)
        if run is not None and run.owner is not None and run.owner.epoch == epoch:
            await withdraw(store, run, epoch=epoch, reason="its start was given up")
