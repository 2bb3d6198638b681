"""A supervisor as the owner of its runs: registers with the store, renews its lease, and releases it.

While registered, it also ends runs that other owners have lost.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import anyio

from proctor.policies.values.foreign_code import error_text

from ..arguments import moment_before
from ..errors import StoreError
from ..log import Outage
from ..ports.adapter import EndOrphans
from ..ports.processes import enter, leave
from ..ports.store import Store, all_runs
from ..ports.stored_types import Command, Owner, RunFilter, RunInfo, RunStatus
from ..run import recovery
from ..run.recovery import answered, each_ended, end_lost_runs, end_unowned, leave_store, passing_owner
from ..run.tasks import call_isolated, call_within, calls_store

LEASE_S = recovery.LEASE_S
RENEW_S = LEASE_S / 3
RETRY_S = 1.0


class Ownership:
    """One owner, registered when it is first needed; then `registered` is called with it and `store_id` is known.

    `end_orphans` ends what a lost run left running on this machine.
    """

    def __init__(self, store: Store, log: Any, *, registered: Callable[[Owner], None]) -> None:
        self._store = store
        self._log = log
        self._unrenewed = Outage(log, "lease.not_renewed")
        self._registered = registered
        self.end_orphans: EndOrphans | None = None
        self.store_id = ""
        self._owner: Owner | None = None
        self._has_left = False
        self._registering = anyio.Lock()
        self._reaping = anyio.Lock()

    async def owner(self) -> Owner:
        """This owner with its epoch; registers it at the first call. Raises StoreError, also once it has left."""
        if self._owner is not None and not self._has_left:
            return self._owner
        async with self._registering:
            if self._owner is None:
                self.store_id = (await answered(self._store.place)).store_id
                owner = enter()
                try:
                    self._owner = await answered(partial(self._store.register, owner, lease_s=LEASE_S))
                except BaseException:
                    leave(owner)
                    raise
                if self._has_left:
                    await self.leave()
                    raise StoreError("the supervisor has left the store", kind="closed")
                self._registered(self._owner)
        return self._owner

    @property
    def epoch(self) -> int:
        """This owner's epoch; 0 before it is registered."""
        return 0 if self._owner is None else self._owner.epoch

    async def keep(self) -> None:
        """Renew the lease and, beside it, end runs that other owners have lost, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep_reaping)
            pause = RENEW_S
            while True:
                await anyio.sleep(pause)
                pause = RENEW_S if await self._renewed() else RETRY_S

    async def _keep_reaping(self) -> None:
        while True:
            await self.reap()
            await anyio.sleep(RENEW_S)

    async def leave(self) -> None:
        """Release the lease: runs that are not over are lost at once. Errors of the store are ignored."""
        self._has_left = True
        if self._owner is None:
            return
        owner, self._owner = self._owner, None
        await leave_store(self._store, owner)

    async def reap(self) -> None:
        """End runs that other owners have lost; a second caller waits for the first."""
        async with self._reaping:
            if self._owner is not None:
                await end_lost_and_log(self._store, self._log, end_orphans=self.end_orphans)

    async def _renewed(self) -> bool:
        if self._owner is None:
            return True
        epoch = self._owner.epoch
        try:
            await call_within(RENEW_S, lambda: self._store.renew(epoch, lease_s=LEASE_S))
        except Exception as error:  # the lease still runs for a while; appends say when it does not
            self._unrenewed.met(error=error_text(error))
            return isinstance(error, StoreError) and error.kind in ("closed", "fenced")
        self._unrenewed.over()
        return True


LONGEST_WAIT_S = 60.0
PAUSE_S = 0.02
"""The shortest time between two reads of a busy store."""

COMMAND_RETRY_S = 1.0


class CommandReader:
    """Reads a store's commands and delivers each once, in order."""

    def __init__(self, store: Store, deliver: Callable[[Command], None], log: Any) -> None:
        self._store = store
        self._deliver = deliver
        self._log = log
        self._began = 0
        self._after = 0
        self._token = 0
        self._closed = False

    async def run(self, after: int) -> None:
        """Deliver the commands with a number > after until cancelled or the store is closed, despite errors."""
        self._began = self._after = after
        outage = Outage(self._log, "instructions.unreadable")
        while not self._closed:
            try:
                await call_isolated(self._wait)
                outage.over()
            except Exception as error:  # it must not end any run of this process
                kind = error.kind if isinstance(error, StoreError) else ""
                self._closed = kind == "closed"
                if kind == "no_command":
                    self._after += 1  # it keeps none behind it from being heard
                    self._log.error("instruction.unreadable", error=error_text(error))
                elif not self._closed:
                    outage.met(error=error_text(error))
                    await anyio.sleep(COMMAND_RETRY_S)
            await anyio.sleep(PAUSE_S)

    async def _wait(self) -> None:
        token = await self._store.wait(self._token, LONGEST_WAIT_S)
        last = await self._store.last_command()  # most wakes bring no command, and this is all that they cost
        if last < self._after:  # an older copy gives the numbers again; a run ignores what it hears twice
            self._after = min(self._began, last)
            return
        commands = await self._store.commands(after=self._after) if last > self._after else []
        if not commands:
            self._token = token  # only now: what could not be read is not waited for again
        for command in commands:
            self._after = command.number
            try:
                self._deliver(command)
            except Exception as error:  # whoever wrote it, it must not end any run of this process
                self._log.error("instruction.undeliverable", number=command.number, error=error_text(error))


async def end_lost_and_log(store: Store, log: Any, *, end_orphans: EndOrphans | None) -> bool:
    """End every lost run of a store. An error is logged, as it must not end any run here; returns False then."""
    try:
        ended = await call_isolated(lambda: end_lost_runs(store, end_orphans=end_orphans))
    except Exception as error:
        log.warning("lost_runs.not_ended", error=error_text(error))
        return False
    for run in ended:
        log.warning("run.lost", run_id=run.run_id, session_id=run.session_id, owner=str(run.owner))
    return True


_CREATED: frozenset[RunStatus] = frozenset(("created",))


@calls_store
async def reap(store: Store, *, end_orphans: EndOrphans | None = None) -> list[RunInfo]:
    """End every lost run of a store, each with one `run_failed`; see `end_lost_runs`."""
    return await end_lost_runs(store, end_orphans=end_orphans)


@calls_store
async def withdraw_created(store: Store, *, older_than: timedelta, now: datetime | None = None) -> list[RunInfo]:
    """End the old runs that were created and never started, each with one `run_cancelled`; returns those that this
    call ended, oldest first. Runs claimed by a live owner are about to start, and stay.

    Args:
        store: the store of the runs.
        older_than: how long ago they were created at least.
        now: the moment to count back from; by default the present.

    Raises:
        UsageError: `older_than` is not a duration.
        StoreError: the store cannot be read or written.
    """
    where = RunFilter(status=_CREATED, until=moment_before(now, older_than))
    found = [run async for run in all_runs(store, where=where)]
    if not found:
        return []
    async with passing_owner(store) as owner:

        async def end(run: RunInfo) -> bool:
            reason = f"it was created {run.created_at:%Y-%m-%d %H:%M} UTC and never started" if run.created_at else ""
            return await end_unowned(store, run, epoch=owner.epoch, reason=reason)

        return await each_ended(found[::-1], end)
