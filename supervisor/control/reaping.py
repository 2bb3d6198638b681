"""Ending, for somebody who only passes by, what owners who are gone have left."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ..facts import Owner, RunInfo
from ..log import logger
from ..ports import Remains, Store
from ..run.orphans import end_lost, end_lost_runs
from .ownership import Ownership


@asynccontextmanager
async def passing_owner(store: Store) -> AsyncIterator[Owner]:
    """An owner for as long as it takes, that owns no runs of its own. Raises StoreError."""
    ownership = Ownership(store, logger(), registered=lambda owner: None)
    try:
        yield await ownership.owner()
    finally:
        await ownership.leave()


async def reap(store: Store, *, remains: Remains | None = None) -> list[RunInfo]:
    """End every lost run of a store, each with one `run_failed` that says so; gives those that this ended.

    `remains` ends what a run left running on this machine. Created runs that nobody started stay. Raises StoreError.
    """
    if not any(run.status == "lost" for run in await store.lost_runs()):
        return []
    async with passing_owner(store) as owner:
        return await end_lost_runs(store, epoch=owner.epoch, remains=remains)


async def reap_run(store: Store, run: RunInfo, *, remains: Remains | None = None) -> bool:
    """End one run whose owner is gone, or that never had one; False where another has ended it, or owns it."""
    async with passing_owner(store) as owner:
        return await end_lost(store, run, epoch=owner.epoch, remains=remains)
