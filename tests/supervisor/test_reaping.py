"""Runs that were created and never started, withdrawn after a time that makes sense."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from proctor.supervisor import MemoryStore, RunInfo, UsageError
from proctor.supervisor.control.ownership import withdraw_created

pytestmark = pytest.mark.anyio
NOW = datetime(2026, 1, 2, tzinfo=UTC)


async def created(*days: int) -> MemoryStore:
    """A store with a run created on each of these days before."""
    store = MemoryStore()
    for n in days:
        await store.create_run(
            RunInfo(run_id=f"r{n}", session_id=f"s{n}", created_at=NOW - timedelta(days=n, seconds=1))
        )
    return store


async def test_runs_of_any_age_may_be_withdrawn() -> None:
    """No time at all is a time; the others stay."""
    store = await created(0, 1, 2)
    old = await withdraw_created(store, older_than=timedelta(days=1), now=NOW)
    rest = await withdraw_created(store, older_than=timedelta(0), now=NOW)

    assert [[run.run_id for run in found] for found in (old, rest)] == [["r1", "r2"], ["r0"]]
    assert {run.status for run in await store.runs()} == {"cancelled"}


@pytest.mark.parametrize("older_than", [timedelta(microseconds=-1), timedelta(days=-1), 1, None, "1d"])
async def test_a_time_that_makes_no_sense_is_refused(older_than: Any) -> None:
    """And no run is touched."""
    store = await created(1)
    with pytest.raises(UsageError, match="older_than"):
        await withdraw_created(store, older_than=older_than, now=NOW)

    assert [run.status for run in await store.runs()] == ["created"]
