"""Runs without an owner: a lost run is continued by one new run; a run that was never started is withdrawn."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import force_setattr
from supervised import OPEN, around

from proctor.policies.events import RunCancelled, RunStarted, ToolApprovalRequested, ToolCallRequested
from proctor.policies.events.calls import input_digest
from proctor.supervisor import (
    Cancel,
    MemoryStore,
    Owner,
    RunInfo,
    StoreError,
    UsageError,
    execute_run,
    withdraw_created,
)
from proctor.supervisor.arguments import BOUNDS
from proctor.supervisor.control.ownership import reap
from proctor.supervisor.ports.processes import enter, leave
from proctor.supervisor.run.recovery import passing_owner
from proctor.supervisor.store.invariants import AGAIN, create_next, latest, next_of
from proctor.supervisor.testing import Ask, FakeAdapter

pytestmark = pytest.mark.anyio
RUN = RunInfo(run_id="r", session_id="s", spec={"prompt": "Go", AGAIN: {"times": 2, "prompt": "Go on"}})


async def run_ids(store: MemoryStore) -> list[str]:
    return [run.run_id for run in await store.runs()]


async def cancelled(store: MemoryStore) -> list[str]:
    return [order.value for order in await store.commands() if isinstance(order, Cancel)]


async def test_each_continues_the_one_before() -> None:
    """In its session, numbered, with one retry less. Two processes that end the same run create one."""
    store = MemoryStore()
    run = await store.create_run(RUN)
    for _ in range(3):
        await create_next(store, run)
        await create_next(store, run)
        run = await latest(store, RUN)

    assert await run_ids(store) == ["r.3", "r.2", "r"]
    assert (run.run_id, run.session_id, next_of(run)) == ("r.3", "s", None)


async def lost(store: MemoryStore, run: RunInfo) -> None:
    """A run that has started, whose owner is gone."""
    owner = await store.register(Owner(owner_id="gone"), lease_s=60)
    await store.create_run(run, epoch=owner.epoch)
    await store.append([RunStarted(run_id=run.run_id, session_id=run.session_id)], epoch=owner.epoch)
    await store.release(owner.epoch)


async def test_whoever_ends_a_lost_run_creates_the_one_that_continues_it() -> None:
    """Once, however often the store is searched."""
    store = MemoryStore()
    await lost(store, RUN)
    await reap(store)
    await reap(store)

    assert [(run.run_id, run.status) for run in await store.runs()] == [("r.2", "created"), ("r", "failed")]


async def test_the_record_of_a_lost_run_is_not_said_to_be_full(smaller_bounds: None) -> None:
    """Its owner may have had larger bounds than whoever ends it."""
    store, owner = MemoryStore(), Owner(owner_id="gone")
    ids: dict[str, Any] = {"run_id": "r", "session_id": "s"}
    call: dict[str, Any] = {**ids, "tool_call_id": "c", "tool_name": "pay"}
    waits = ToolApprovalRequested(
        **call,
        approval_id="r.1",
        input_digest=input_digest({}),
        held=True,
        expires_at=datetime(2099, 1, 1, tzinfo=UTC),
    )
    epoch = (await store.register(owner, lease_s=60)).epoch
    await store.create_run(RunInfo(**ids), epoch=epoch)
    await store.append([RunStarted(**ids), ToolCallRequested(**call), waits], epoch=epoch)
    await store.release(epoch)
    await reap(store)
    ended = [event.type async for event in store.read("s")][3:]

    assert ended == ["tool_approval_expired", "tool_call_denied", "run_failed"]


@pytest.fixture
def smaller_bounds() -> Iterator[None]:
    """The usual bounds, made smaller."""
    most = BOUNDS.max_events
    force_setattr(BOUNDS, "max_events", 2)
    yield
    force_setattr(BOUNDS, "max_events", most)


async def test_an_unreadable_record_keeps_no_other_lost_run_from_its_end() -> None:
    """It is the caller's error where nothing else is ended."""

    def read(usual: Any, session_id: str, **which: Any) -> Any:
        if session_id == "unreadable":
            raise StoreError("record 2 cannot be read", kind="corrupt")
        return usual(session_id, **which)

    store = around(read=read)
    for session_id in ("unreadable", "s"):
        await lost(store, RunInfo(run_id=f"of-{session_id}", session_id=session_id))
    ended = await reap(store)
    with pytest.raises(StoreError, match="cannot be read"):
        await reap(store)

    assert [run.run_id for run in ended] == ["of-s"]


async def test_it_gets_the_first_prompt_until_the_agent_had_started() -> None:
    """Before that, there is nothing to continue."""
    store = MemoryStore()
    begun = RunInfo(run_id="b", session_id="s", spec=RUN.spec, started_seq=2)

    assert [one and one.spec["prompt"] for one in (next_of(RUN), next_of(begun))] == ["Go", "Go on"]
    assert await latest(store, begun) is begun


async def test_an_unrelated_run_with_that_id_is_left_alone() -> None:
    """It does not continue the lost run, which is ended anyway."""
    store = MemoryStore()
    run = await store.create_run(RUN)
    await store.create_run(RunInfo(run_id="r.2", session_id="other"))
    await create_next(store, run)

    assert await latest(store, run) == run
    assert await run_ids(store) == ["r.2", "r"]


@pytest.mark.parametrize("scope", ["run", "session", "all"])
async def test_an_earlier_cancel_command_ends_both(scope: str) -> None:
    """A cancelled run is not continued, even if no owner got the command."""
    store = MemoryStore()
    run = await store.create_run(RUN)
    await store.send_command(_order(scope))
    await create_next(store, run)

    assert await run_ids(store) == ["r"]


@pytest.mark.parametrize("scope", ["run", "session", "all"])
async def test_a_command_during_the_recovery_is_passed_on(scope: str) -> None:
    """It was sent before the new run existed, so it does not name that."""

    async def ordered(create_run: Any, run: RunInfo, **more: Any) -> Any:
        if run.run_id == "r.2":
            await store.send_command(_order(scope))
        return await create_run(run, **more)

    store = around(create_run=ordered)
    await create_next(store, await store.create_run(RUN))

    assert (await cancelled(store))[1:] == ["r.2"]


async def test_a_failing_store_is_reported() -> None:
    """The lost run is not ended then; the next process does both."""

    async def fails(*_: Any) -> None:
        raise StoreError("no room on the disk")

    with pytest.raises(StoreError, match="no room"):
        await create_next(around(create_run=fails), RUN)


async def test_a_run_whose_spec_does_not_allow_a_retry_is_not_continued() -> None:
    """A supervisor does not repeat a run that it started."""
    store = MemoryStore()
    owner = await store.register(enter(), lease_s=60)
    run = await store.create_run(RunInfo(run_id="r", session_id="s", spec={"prompt": "Go"}), epoch=owner.epoch)
    leave(owner)
    await create_next(store, run)

    assert await run_ids(store) == ["r"]


def _order(scope: str) -> Cancel:
    value = {"run": "r", "session": "s", "all": ""}[scope]
    return Cancel(scope=scope, value=value, by="ana")  # type: ignore[arg-type]  # one of the three


NOW = datetime(2026, 5, 6, 12, 0, tzinfo=UTC)
DAY = timedelta(days=1)


async def created(store: MemoryStore, run_id: str, *, hours: float, epoch: int = 0, session_id: str = "") -> None:
    at = NOW - timedelta(hours=hours)
    run = RunInfo(run_id=run_id, session_id=session_id or f"s-{run_id}", created_at=at, spec={"prompt": "go"})
    await store.create_run(run, epoch=epoch)


async def test_an_old_created_run_that_never_started_is_withdrawn() -> None:
    """Oldest first, each with one end that says so. Newer runs can be started, withdrawn ones can't."""
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
        await execute_run(store, FakeAdapter(), "old", policies=[OPEN])
    result = await execute_run(store, FakeAdapter([Ask(id="c", name="read")]), "young", policies=[OPEN])
    assert result.status == "completed"


async def test_a_run_claimed_by_a_live_worker_is_not_withdrawn() -> None:
    """The worker is about to start it. Once the worker has gone, the run has no owner."""
    store = MemoryStore()
    async with passing_owner(store) as worker:
        await created(store, "claimed", hours=48, epoch=worker.epoch)
        kept = await withdraw_created(store, older_than=DAY, now=NOW)
    left = await withdraw_created(store, older_than=DAY, now=NOW)

    assert kept == []
    assert [run.run_id for run in left] == ["claimed"]


async def test_several_created_runs_of_one_session_are_withdrawn_together() -> None:
    """As of an abandoned queue."""
    store = MemoryStore()
    for n in range(3):
        await created(store, f"r{n}", hours=48, session_id="s")
    ended = await withdraw_created(store, older_than=DAY, now=NOW)

    assert [run.run_id for run in ended] == ["r0", "r1", "r2"]
    assert {run.status for run in await store.runs()} == {"cancelled"}


async def test_a_run_started_meanwhile_is_left_to_be_reaped() -> None:
    """Its process died between the listing and the claim, so the run is lost and not withdrawn."""

    async def started_before(claim_run: Any, run_id: str, **how: Any) -> Any:
        async with passing_owner(store) as other:
            await claim_run(run_id, epoch=other.epoch)
            await store.append([RunStarted(run_id=run_id, session_id=f"s-{run_id}")], epoch=other.epoch)
        return await claim_run(run_id, **how)

    store = around(claim_run=started_before)
    await created(store, "started", hours=48)

    assert await withdraw_created(store, older_than=DAY, now=NOW) == []
    assert [run.status for run in await store.runs()] == ["lost"]


async def test_an_age_of_zero_withdraws_every_created_run() -> None:
    """Those created up to this moment. With an invalid age, none is withdrawn."""
    store = MemoryStore()
    await created(store, "now", hours=0.001)
    for age in (timedelta(days=-1), 86_400):
        with pytest.raises(UsageError, match="`older_than` is a time"):
            await withdraw_created(store, older_than=age)  # type: ignore[arg-type]

    assert await withdraw_created(store, older_than=timedelta.max) == []
    assert [run.run_id for run in await withdraw_created(store, older_than=timedelta(0), now=NOW)] == ["now"]
