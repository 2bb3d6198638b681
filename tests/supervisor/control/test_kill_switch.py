"""The kill switch cancels runs wherever they are, and freezes new starts until it is lifted."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest
from anyio import wait_all_tasks_blocked
from msgspec.structs import replace
from supervised import OPEN, around

from proctor.policies import RunContext
from proctor.policies.events import RunCancelled, RunFailed, RunStarted
from proctor.supervisor import KillOutcome, KillSwitch, MemoryStore, RunHandle, Supervisor
from proctor.supervisor.api.active_runs import ActiveRuns, deliver
from proctor.supervisor.api.run_once import create_run, execute_run, run_once
from proctor.supervisor.errors import StartsBlockedError, StoreError, UsageError
from proctor.supervisor.ports.stored_types import Block, Cancel, Command, Owner, RunInfo
from proctor.supervisor.store.invariants import AGAIN, create_next
from proctor.supervisor.testing.fakes import PATIENCE_S, FakeAdapter, Pause

pytestmark = pytest.mark.anyio
ACME = RunContext(tenant="acme", labels={"env": "prod", "shard": 7})
OTHER = RunContext(tenant="other", labels={"env": "test"})


@asynccontextmanager
async def running(store: MemoryStore, *contexts: RunContext) -> AsyncIterator[list[RunHandle]]:
    """Active runs, each in its own supervisor; any that remain are cancelled at the end."""
    async with Supervisor(store) as here, Supervisor(store) as there:
        handles = [
            await (here, there)[n % 2].start(FakeAdapter([Pause()]), "go", policies=[OPEN], context=context)
            for n, context in enumerate(contexts)
        ]
        try:
            yield handles
        finally:
            for handle in handles:
                await handle.cancel(reason="the test is over")


def summary(outcomes: list[KillOutcome]) -> list[tuple[str, str, bool]]:
    return [(outcome.run_id, outcome.status, outcome.ended) for outcome in outcomes]


@pytest.mark.parametrize(("scope", "ends"), [
    ({"everything": True}, [0, 1, 2]),
    ({"tenant": "acme"}, [0, 1]),
    ({"label": "env=test"}, [2]),
    ({"label": "shard=7"}, [0, 1]),
    ({"run_id": 1}, [1]),
    ({"session_id": 1}, [1]),
    ({"tenant": "nobody"}, []),
])  # fmt: skip
async def test_only_the_runs_of_a_scope_are_cancelled(scope: dict[str, Any], ends: list[int]) -> None:
    """Whichever supervisor owns them; each is reported. A scope may name a run by its id or by its session."""
    store = MemoryStore()
    async with running(store, ACME, ACME, OTHER) as handles:
        scope = {
            name: getattr(handles[1], name) if value == 1 and name.endswith("_id") else value
            for name, value in scope.items()
        }
        outcomes = await KillSwitch(store).kill(by="ana", reason="maintenance", **scope)
        going = [n for n, handle in enumerate(handles) if not handle.done]
        reasons = [(await handles[n].wait()).reason for n in ends]

    assert summary(outcomes) == [(handles[n].run_id, "cancelled", True) for n in ends]
    assert going == [n for n in range(3) if n not in ends]
    assert reasons == ["maintenance"] * len(ends)


RETRIED = RunInfo(run_id="r", session_id="s", spec={"prompt": "go", AGAIN: {"times": 1}})


async def lose(store: MemoryStore) -> None:
    """The run is lost, and its retry created."""
    await store.append([RunStarted(run_id="r", session_id="s"), RunFailed(run_id="r", session_id="s")])
    await create_next(store, RETRIED)


async def test_the_id_of_a_lost_run_names_its_retry() -> None:
    """Only that one is ordered to end."""
    store = MemoryStore()
    await store.create_run(RETRIED)
    await lose(store)
    outcomes = await KillSwitch(store).kill(by="ana", run_id="r")

    assert summary(outcomes) == [("r.2", "cancelled", True)]
    assert [command.value for command in await store.commands() if isinstance(command, Cancel)] == ["r.2"]


@pytest.mark.parametrize("scope", [{"run_id": "r"}, {"everything": True}])
async def test_a_run_that_is_created_just_before_the_command_is_cancelled_too(scope: dict[str, Any]) -> None:
    """As the retry of one that was lost meanwhile."""
    lost: list[None] = []

    async def late(send_command: Any, command: Any) -> Any:
        if not lost:
            lost.append(None)
            await lose(store)
        return await send_command(command)

    store = around(send_command=late)
    await store.create_run(RETRIED)
    outcomes = await KillSwitch(store).kill(by="ana", **scope)

    assert summary(outcomes) == [("r", "failed", True), ("r.2", "cancelled", True)]


async def test_a_run_that_does_not_end_in_time_is_reported_with_its_owner() -> None:
    """It may end later, and the report says which owner got the command."""
    store = MemoryStore()
    owner = await store.register(Owner(owner_id="busy", host="elsewhere"), lease_s=3600)
    await store.create_run(RunInfo(run_id="silent", session_id="s"), epoch=owner.epoch)
    (outcome,) = await KillSwitch(store).kill(by="ana", everything=True, wait_s=0.01)

    assert (outcome.run_id, outcome.status, outcome.ended) == ("silent", "created", False)
    assert outcome.owner is not None
    assert outcome.owner.owner_id == "busy"


async def test_a_command_reaches_its_owner_although_an_older_copy_reuses_the_number_of_a_lost_one() -> None:
    """As after a failover to a standby without the latest commands."""
    store = MemoryStore()
    async with running(store, ACME) as [handle]:
        for _ in range(3):
            await KillSwitch(store).kill(by="ana", tenant="nobody")
        await anyio.wait_all_tasks_blocked()
        del store._approvals.commands[1:]
        outcomes = await KillSwitch(store).kill(by="ana", everything=True, wait_s=PATIENCE_S / 2)

    assert summary(outcomes) == [(handle.run_id, "cancelled", True)]


async def test_runs_without_an_owner_are_ended_by_the_caller() -> None:
    """A lost run, one that its owner had not started yet, and one that was created and never started."""
    store = MemoryStore()
    owner = await store.register(Owner(owner_id="gone"), lease_s=3600)
    await store.create_run(RunInfo(run_id="lost", session_id="s"), epoch=owner.epoch)
    await store.append([RunStarted(run_id="lost", session_id="s", at=datetime.now(UTC))], epoch=owner.epoch)
    await store.create_run(RunInfo(run_id="claimed", session_id="claimed"), epoch=owner.epoch)
    await store.release(owner.epoch)
    created = await create_run(store, "never started")
    outcomes = await KillSwitch(store).kill(by="ana", reason="stop", everything=True)

    ended = [("lost", "failed", True), ("claimed", "cancelled", True), (created, "cancelled", True)]
    assert summary(outcomes) == ended
    with pytest.raises(UsageError, match="cancelled"):
        await execute_run(store, FakeAdapter(), created, policies=[OPEN])


Start = Callable[[MemoryStore], Any]


async def starting(store: MemoryStore) -> None:
    async with Supervisor(store) as supervisor:
        await supervisor.start(FakeAdapter(), "go", policies=[OPEN], context=ACME)


async def once(store: MemoryStore) -> None:
    await run_once(FakeAdapter(), "go", policies=[OPEN], context=ACME, store=store)


async def executing(store: MemoryStore) -> None:
    run_id = await create_run(store, "go", context=ACME)
    await execute_run(store, FakeAdapter(), run_id, policies=[OPEN])


@pytest.mark.parametrize("start", [starting, once, executing])
@pytest.mark.parametrize("scope", [{"everything": True}, {"tenant": "acme"}, {"label": "env=prod"}])
async def test_no_run_of_a_frozen_scope_starts_until_it_is_lifted(start: Start, scope: dict[str, Any]) -> None:
    """The error says who froze it, when and why. Nothing is launched or recorded. Other runs start meanwhile."""
    store = MemoryStore()
    switch = KillSwitch(store)
    await switch.block_starts(by="ana", reason="an incident", **scope)
    with pytest.raises(StartsBlockedError, match=r"`ana` froze them at .* UTC: an incident") as raised:
        await start(store)
    statuses = [run.status for run in await store.runs()]
    if "everything" not in scope:
        other = await run_once(FakeAdapter(), "go", policies=[OPEN], context=OTHER, store=store)
        assert other.status == "completed"
    lifted = await switch.lift(by="bo", **scope)
    await start(store)

    assert raised.value.code == "starts_blocked"
    assert isinstance(raised.value.block, Block)
    assert set(statuses) <= {"created"}
    assert [block.by for block in lifted] == ["ana"]
    assert (await store.runs())[0].status == "completed"


FREEZE, KILL = Block(scope="all", by="ana"), Cancel(scope="all", by="ana")


def racing(look: int, *orders: Command) -> Any:
    """These are ordered right after one of the checks of a start."""
    looks: list[None] = []

    async def blocks(usual: Any) -> Any:
        found = await usual()
        looks.append(None)
        for order in orders if len(looks) == look else ():
            await store.send_command(order)
        return found

    store = around(blocks=blocks)
    return store


async def test_a_freeze_during_a_start_ends_the_run() -> None:
    """The start checks again once it owns the run. A run created before the command is ended by it."""
    adapter, late = FakeAdapter(), FakeAdapter([Pause()])
    store = racing(1, FREEZE, KILL)
    with pytest.raises(StartsBlockedError):
        await run_once(adapter, "go", policies=[OPEN], store=store)
    result = await run_once(late, "go", policies=[OPEN], store=racing(2, FREEZE, KILL))

    assert adapter.launches == []
    assert [run.status for run in await store.runs()] == [result.status] == ["cancelled"]


async def new(adapter: FakeAdapter, store: MemoryStore) -> None:
    await run_once(adapter, "go", policies=[OPEN], store=store)


async def queued(adapter: FakeAdapter, store: MemoryStore) -> None:
    await execute_run(store, adapter, await create_run(store, "go"), policies=[OPEN])


@pytest.mark.parametrize(("start", "status"), [(new, "cancelled"), (queued, "created")])
async def test_a_start_that_a_freeze_overtakes_gives_up_its_run(
    start: Callable[[FakeAdapter, MemoryStore], Awaitable[None]], status: str
) -> None:
    """One that was created before stays for a later start."""
    store, adapter = racing(1, FREEZE), FakeAdapter()
    with pytest.raises(StartsBlockedError):
        await start(adapter, store)
    (run,) = await store.runs()

    assert (run.status, adapter.launches) == (status, [])


@pytest.mark.parametrize("scope", [
    *({}, {"everything": True, "tenant": "a"}, {"tenant": ""}, {"label": "env"}, {"label": "=x"}),
    *({"run_id": "none"}, {"everything": True, "by": ""}),
])  # fmt: skip
async def test_an_invalid_scope_cancels_nothing(scope: dict[str, Any]) -> None:
    """Least of all everything. An empty `by` is invalid too."""
    store = MemoryStore()
    async with running(store, ACME) as handles:
        with pytest.raises(UsageError):
            await KillSwitch(store).kill(**{"by": "ana", **scope})

        assert not handles[0].done


async def test_a_secret_in_a_reason_is_redacted() -> None:
    """As in all other stored text."""
    store = MemoryStore()
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    await KillSwitch(store).block_starts(by="ana", reason=f"leaked {secret}", everything=True)

    assert secret not in (await store.blocks())[0].reason


async def test_a_run_that_ends_at_once_is_reported_too() -> None:
    """Its owner may be faster than the caller's listing, or than the confirmation of the command."""

    async def obeyed(send_command: Any, command: Any) -> Any:
        number = await send_command(command)
        await store.append([RunCancelled(run_id="r", session_id="s")])
        return number

    store = around(send_command=obeyed)
    await store.append([RunStarted(run_id="r", session_id="s")])
    outcomes = await KillSwitch(store).kill(by="ana", everything=True)

    assert [(outcome.run_id, outcome.status, outcome.ended) for outcome in outcomes] == [("r", "cancelled", True)]


@pytest.mark.parametrize("lost", [False, True])
async def test_a_kill_without_a_visible_effect_says_that_its_command_is_recorded(lost: bool) -> None:
    """Otherwise people would think that the runs are active, although their owners end them. The store's runs can't
    be read, from the start or once the command is stored.
    """
    readable = True

    async def send_command(usual: Any, command: Command) -> Any:
        nonlocal readable
        number, readable = await usual(command), False
        return number

    async def runs(usual: Any, **which: Any) -> Any:
        if not readable:
            raise StoreError("the store cannot be reached")
        return await usual(**which)

    store = around(send_command=send_command, runs=runs)
    async with running(store, ACME) as [handle]:
        readable = not lost
        with pytest.raises(StoreError, match="cannot be reached; the command to cancel is recorded"):
            await KillSwitch(store).kill(everything=True, by="ana")
        ended = await handle.wait()

    assert ended.status == "cancelled"


async def test_a_command_ends_no_run_that_was_created_after_it() -> None:
    """Although a supervisor may read it again: numbers that an older copy of the store gives are read twice."""
    store = MemoryStore()
    await store.send_command(KILL)
    async with running(store, ACME) as (handle,):
        for number in (1, 2):
            deliver(replace(KILL, number=number), handle)
            await wait_all_tasks_blocked()
            ended = handle.done
            assert ended == (number == 2)


async def test_a_run_that_cannot_be_cancelled_keeps_no_other_from_it() -> None:
    """The error is raised once all have had the order."""
    cancelled: list[str] = []

    def cancel(run_id: str, *_: Any, **given: Any) -> None:
        cancelled.append(run_id)
        if run_id == "broken":
            raise RuntimeError(run_id)

    runs = ActiveRuns()
    for run_id in ("broken", "whole"):
        actor = SimpleNamespace(cancel=partial(cancel, run_id))
        runs.add(cast("RunHandle", SimpleNamespace(run_id=run_id, _actor=actor)), lambda: None)
    with pytest.raises(RuntimeError, match="broken"):
        runs.cancel_all("enough")

    assert cancelled == ["broken", "whole"]
