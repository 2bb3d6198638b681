"""Ends what lost owners have left, for a caller that owns no runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ..errors import UsageError
from ..ports.adapters import Remains, Store
from ..ports.facts import RunFilter, RunInfo, RunStatus
from ..run.orphans import end_lost, end_lost_runs, end_unowned, passing_owner
from ..store.paging import all_runs

_CREATED: frozenset[RunStatus] = frozenset(("created",))


async def reap(store: Store, *, remains: Remains | None = None) -> list[RunInfo]:
    """End every lost run of a store, each with one `run_failed` that says so; returns the runs that this call
    ended.

    `remains` ends what a run left running on this machine. Created runs that were never started stay. Raises
    StoreError.
    """
    return await end_lost_runs(store, remains=remains)


async def reap_run(store: Store, run: RunInfo, *, remains: Remains | None = None) -> bool:
    """End one run whose owner is gone, or that never had one; False if another owner ended it or owns it."""
    async with passing_owner(store) as owner:
        return await end_lost(store, run, epoch=owner.epoch, remains=remains)


async def withdraw_created(store: Store, *, older_than: timedelta, now: datetime | None = None) -> list[RunInfo]:
    """End the runs that were created so long ago and never started, each with one `run_cancelled` that says so; gives
    those that this ended, oldest first. One that an owner who is there has claimed is about to start, and stays.

    Args:
        store: where they are.
        older_than: how long ago they were created at least.
        now: the moment to count back from; by default the present.

    Raises:
        UsageError: `older_than` is not a duration.
        StoreError: the store cannot be read or written.
    """
    if not isinstance(older_than, timedelta) or older_than < timedelta(0):
        raise UsageError("`older_than` is a time, for example `timedelta(days=1)`")
    where = RunFilter(status=_CREATED, until=(now or datetime.now(UTC)) - older_than)
    # Without the moment of its creation a run is left alone.
    found = [run async for run in all_runs(store, where=where) if run.created_at is not None]
    if not found:
        return []
    ended = []
    async with passing_owner(store) as owner:
        for run in reversed(found):
            reason = f"it was created {run.created_at:%Y-%m-%d %H:%M} UTC and never started"
            if await end_unowned(store, run, epoch=owner.epoch, reason=reason):
                ended.append(run)
    return ended
