"""A created run that nobody starts does not wait for ever: it is withdrawn by whoever asks for that."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from proctor.policies.events import RunCancelled, RunStarted
from proctor.policies.policy import Policy
from proctor.supervisor import MemoryStore, RunInfo, UsageError, execute_run, withdraw_created
from proctor.supervisor.run.recovery import passing_owner
from proctor.supervisor.testing import Ask, FakeAdapter

anyone = pytest.mark.anyio
NOW = datetime(2026, 5, 6, 12, 0, tzinfo=UTC)
DAY = timedelta(days=1)


async def created(store: MemoryStore, run_id: str, *, hours: float, epoch: int = 0, session_id: str = "") -> None:
    at = NOW - timedelta(hours=hours)
    run = RunInfo(run_id=run_id, session_id=session_id or f"s-{run_id}", created_at=at, spec={"prompt": "go"})
    await store.create_run(run, epoch=epoch)


@anyone
async def test_what_was_created_long_ago_and_never_started_is_withdrawn(permissive: Policy) -> None:
    """Oldest first, each with one end that says so; younger ones can be started, withdrawn ones cannot."""
    store = MemoryStore()
    for run_id, hours in (("older", 30), ("old", 25), ("young", 23)):
        await created(store, run_id, hours=hours)
    ended = await withdraw_created(store, older_than=DAY, now=NOW)
    record = [event async for event in store.read("s-old")]

    assert [run.run_id for run in ended] == ["older", "old"]
    assert [type(event) for event in record] == [RunCancelled]
    assert "created 2026-05-05 11:00 UTC and never started" in getattr(record[0], "reason", "")
    assert await withdraw_created(store, older_than=DAY, now=NOW) == []
    with pytest.raises(UsageError, match="cancelled"):
        await execute_run(store, FakeAdapter(), "old", policies=[permissive])
    result = await execute_run(store, FakeAdapter([Ask(id="c", name="read")]), "young", policies=[permissive])
    assert result.status == "completed"


@anyone
async def test_one_that_a_worker_has_claimed_stays_until_the_worker_is_gone() -> None:
    """It is about to start; claimed and left, it is nobody's."""
    store = MemoryStore()
    async with passing_owner(store) as worker:
        await created(store, "claimed", hours=48, epoch=worker.epoch)
        kept = await withdraw_created(store, older_than=DAY, now=NOW)
    left = await withdraw_created(store, older_than=DAY, now=NOW)

    assert kept == []
    assert [run.run_id for run in left] == ["claimed"]


@anyone
async def test_several_of_one_session_are_withdrawn_together() -> None:
    """A queue that was given up."""
    store = MemoryStore()
    for n in range(3):
        await created(store, f"r{n}", hours=48, session_id="s")
    ended = await withdraw_created(store, older_than=DAY, now=NOW)

    assert [run.run_id for run in ended] == ["r0", "r1", "r2"]
    assert {run.status for run in await store.runs()} == {"cancelled"}


class StartedMeanwhile(MemoryStore):
    """Between the look at the runs and the claim, another process starts one and dies."""

    async def claim_run(self, run_id: str, *, epoch: int, lost: bool = False) -> RunInfo:
        """Have the run started first, by an owner that leaves."""
        async with passing_owner(self) as other:
            await super().claim_run(run_id, epoch=other.epoch)
            await self.append([RunStarted(run_id=run_id, session_id=f"s-{run_id}")], epoch=other.epoch)
        return await super().claim_run(run_id, epoch=epoch, lost=lost)


@anyone
async def test_one_that_was_started_meanwhile_is_left_to_be_reaped() -> None:
    """It is lost, not withdrawn, and the others are still ended."""
    store = StartedMeanwhile()
    await created(store, "started", hours=48)

    assert await withdraw_created(store, older_than=DAY, now=NOW) == []
    assert [run.status for run in await store.runs()] == ["lost"]


@anyone
async def test_an_age_of_nothing_is_every_created_run() -> None:
    """What was created up to this moment."""
    store = MemoryStore()
    await created(store, "now", hours=0.001)

    assert [run.run_id for run in await withdraw_created(store, older_than=timedelta(0), now=NOW)] == ["now"]


@anyone
async def test_an_invalid_age_is_refused() -> None:
    """Nothing is withdrawn by mistake."""
    for age in (timedelta(days=-1), 86_400):
        with pytest.raises(UsageError, match="`older_than` is a time"):
            await withdraw_created(MemoryStore(), older_than=age)  # type: ignore[arg-type]
