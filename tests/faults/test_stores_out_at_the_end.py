"""A store that fails when a run ends, and until its supervisor is gone: the next one to open it settles the run."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.adapters.stores import SQLiteStore
from proctor.policies import parse_policies
from proctor.policies.events import TERMINAL, Event, RunFailed, TokenUsageUpdated, ToolCallStarted
from proctor.supervisor import MemoryStore, Store, StoreError, Supervisor, create_run, execute_run
from proctor.supervisor.control.ownership import reap
from proctor.supervisor.ports.budget_ledger import ReservationResult
from proctor.supervisor.testing.fakes import PATIENCE_S, Ask, FakeAdapter

POLICIES = parse_policies(
    {
        "name": "p",
        "limits": {"max_tool_calls": {"max": 4, "scope": "session", "action": "deny"}},
        "prices": {"m": {"input_usd_per_mtok": 1_000_000, "output_usd_per_mtok": 0}},
    }
)
STEPS = [
    step for n in (1, 2, 3) for step in (Ask(id=f"c{n}", name="bash"), TokenUsageUpdated(model="m", input_tokens=10))
]


class Outage:
    """Accepts `room` more events; then it rejects everything, including releases."""

    def __init__(self, room: int) -> None:
        self.room = room

    def take(self, events: int) -> None:
        self.room = self.room - events if events <= self.room else 0
        self.check()

    def check(self) -> None:
        if not self.room:
            raise StoreError("the disk is full", kind="unwritable")


NONE = 2**31


class _Out:
    outage = Outage(NONE)

    async def append(self: Any, events: Sequence[Event], *, epoch: int = 0) -> list[Event]:
        self.outage.take(len(events))
        return await super().append(events, epoch=epoch)  # type: ignore[misc, no-any-return]

    async def release(self: Any, epoch: int) -> None:
        self.outage.check()
        await super().release(epoch)  # type: ignore[misc]

    async def settle(self: Any, *run: Any, **owner: Any) -> list[ReservationResult]:
        self.outage.check()
        return await super().settle(*run, **owner)  # type: ignore[misc, no-any-return]


class MemoryOut(_Out, MemoryStore):
    pass


class MemoryUnsettling(MemoryStore):
    """It stores everything, and settles nothing until the outage is over."""

    outage = Outage(0)

    async def settle(self, *run: Any, **owner: Any) -> list[ReservationResult]:
        self.outage.check()
        return await super().settle(*run, **owner)


class FileOut(_Out, SQLiteStore):
    pass


async def run_into(store: Any, room: int) -> list[Event]:
    """A run whose supervisor closes during the outage; the events acknowledged by then."""
    store.outage = Outage(room)
    with anyio.fail_after(PATIENCE_S), suppress(StoreError):
        async with Supervisor(store) as supervisor:
            options: Any = {"policies": POLICIES, "session_id": "s", "run_id": "r1"}
            handle = await supervisor.start(FakeAdapter(STEPS), "go", **options)
            await handle.wait()
    store.outage = Outage(NONE)
    return [event async for event in store.read("s")]


async def check_settled_by_the_next(store: Any, acknowledged: list[Event]) -> None:
    """A new supervisor continues the session."""
    left = await store.run("r1")
    adapter = FakeAdapter([Ask(id=f"d{n}", name="bash") for n in range(5)])
    async with Supervisor(store) as supervisor:
        options: Any = {"policies": POLICIES, "session_id": "s", "run_id": "r2", "continuation": "none"}
        handle = await supervisor.start(adapter, "go on", **options)
        await handle.wait()
    ran = sum(isinstance(event, ToolCallStarted) for event in acknowledged)

    assert left.status == "lost"
    await check_settled(store, acknowledged)
    assert len(adapter.ran) == 4 - ran
    assert await reap(store) == []


async def check_settled(store: Store, acknowledged: list[Event]) -> None:
    """One end, no acknowledged event lost, and the usage that the log shows."""
    events = [event async for event in store.read("s", run_id="r1")]
    used = 10 * sum(isinstance(event, TokenUsageUpdated) for event in acknowledged)
    calls = sum(isinstance(event, ToolCallStarted) for event in acknowledged)
    run = await store.run("r1")

    assert events[:-1] == acknowledged
    assert [type(event) for event in events if isinstance(event, TERMINAL)] == [RunFailed]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert isinstance(events[-1], RunFailed)
    assert (events[-1].usage["input_tokens"], events[-1].usage["cost_usd"]) == (used, used)
    assert run is not None
    assert (run.status, run.calls, run.usage.input_tokens, run.usage.cost_usd) == ("failed", calls, used, used)


@pytest.mark.trio
@pytest.mark.parametrize("room", range(6, 15))
async def test_the_next_supervisor_settles_it(room: int, autojump_clock: object) -> None:
    """Wherever the outage began, and once. The session's usage continues."""
    store = MemoryOut()
    acknowledged = await run_into(store, room)
    await check_settled_by_the_next(store, acknowledged)


@pytest.mark.trio
@pytest.mark.parametrize("room", [7, 11, 16])
async def test_a_supervisor_that_stays_settles_it_when_the_store_is_back(room: int, autojump_clock: object) -> None:
    """With the run's usage of shared budgets, as nobody else settles an ended run."""
    budget = parse_policies("{name: b, budgets: [{name: money, max_cost_usd: 1000, reserve: 1}]}")
    store = MemoryOut()
    store.outage = Outage(room)
    async with Supervisor(store) as supervisor:
        handle = await supervisor.start(FakeAdapter(STEPS), "go", policies=[*POLICIES, *budget], run_id="r1")
        with pytest.raises(StoreError, match="full"):
            await handle.wait()
        store.outage = Outage(NONE)
        await anyio.sleep(PATIENCE_S)
        run = await store.run("r1")
        [money] = await store.budgets()

    assert run is not None
    assert run.status == "failed"
    assert (money.used, money.reserved) == (run.usage.cost_usd, 0)
    assert money.used > 0


@pytest.mark.trio
@pytest.mark.parametrize("stays", [True, False])
async def test_a_run_ends_only_once_its_budgets_are_settled(stays: bool, autojump_clock: object) -> None:
    """Although its end could be stored. The caller gets the error, and this supervisor settles later, or the next
    one.
    """
    budget = parse_policies("{name: b, budgets: [{name: money, max_cost_usd: 1000, reserve: 1}]}")
    store = MemoryUnsettling()
    async with Supervisor(store) as supervisor:
        handle = await supervisor.start(FakeAdapter(STEPS), "go", policies=[*POLICIES, *budget], run_id="r1")
        with pytest.raises(StoreError, match="full"):
            await handle.wait()
        before = await store.run("r1")
        if stays:
            store.outage = Outage(NONE)
            await anyio.sleep(PATIENCE_S)
    store.outage = Outage(NONE)
    ended = await reap(store)
    run = await store.run("r1")
    [money] = await store.budgets()

    assert before is not None
    assert run is not None
    assert (before.status, run.status, len(ended)) == ("running", *(("completed", 0) if stays else ("failed", 1)))
    assert (money.used, money.reserved) == (run.usage.cost_usd, 0) == (30, 0)


@pytest.mark.anyio
@pytest.mark.parametrize("room", [6, 9, 12])
async def test_the_next_opening_of_its_file_settles_it(room: int, tmp_path: Path) -> None:
    """By a supervisor that opens the file when it is writable again."""
    store = FileOut(tmp_path / "s.db")
    acknowledged = await run_into(store, room)
    await store.aclose()
    async with SQLiteStore(tmp_path / "s.db") as again:
        await check_settled_by_the_next(again, acknowledged)


@pytest.mark.trio
async def test_a_run_that_had_only_been_claimed_can_be_started_again(autojump_clock: object) -> None:
    """It has no events, so it has done nothing."""
    store = MemoryOut()
    run_id = await create_run(store, "go", session_id="s")
    store.outage = Outage(0)
    with anyio.fail_after(PATIENCE_S), pytest.raises(StoreError):
        await execute_run(store, FakeAdapter(STEPS), run_id, policies=POLICIES)
    store.outage = Outage(NONE)
    before = await store.run(run_id)
    result = await execute_run(store, FakeAdapter(STEPS), run_id, policies=POLICIES)

    assert before is not None
    assert before.status == "created"
    assert (result.status, result.usage.input_tokens) == ("completed", 30)
