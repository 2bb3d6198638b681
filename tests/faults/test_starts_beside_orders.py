"""Runs start while commands, answers and cancels arrive: each start is whole or has no effect, and no cancel is lost.

The agents run for ever, or until they are cancelled, so a start that loses a cancel leaves a run that never ends.
With PROCTOR_STARTS runs and PROCTOR_SEED it runs longer, or again.
"""

import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable

import anyio
import pytest
from postgres_server import either_store

from proctor.adapters.stores import open_store
from proctor.policies import RunContext, parse_policies
from proctor.supervisor import ApprovalAnswer, KillSwitch, Store, Supervisor, answer, create_run, pending
from proctor.supervisor.errors import ApprovalError, StartsBlockedError, StoreError, UsageError
from proctor.supervisor.testing.fakes import PATIENCE_S, Ask, FakeAdapter, Pause
from tests.whole_records import whole_record, wrong

pytestmark = pytest.mark.anyio
place = either_store
RUNS = int(os.environ.get("PROCTOR_STARTS", "25"))
SEED = int(os.environ.get("PROCTOR_SEED", "15"))
POLICIES = parse_policies("{name: asks, rules: [{type: blocklist, tools: [deploy], action: request_approval}]}")
TENANTS = ("red", "blue", "green")
"""The last runs get no cancel before all have started; some of their calls need approval."""


class Scene:
    """One supervisor and the people who use it, driven by one seed."""

    def __init__(self, store: Store, supervisor: Supervisor) -> None:
        self.store = store
        self.supervisor = supervisor
        self.chance = random.Random(SEED)
        self.begun = 0
        self.counts: Counter[str] = Counter()

    async def start(self, number: int) -> None:
        """Start one run in one of the ways; its caller may be cancelled meanwhile."""
        chance, run_id = self.chance, f"run-{number}"
        adapter = FakeAdapter([Ask(name="deploy", id="c1"), Pause()])
        context = RunContext(tenant=chance.choice(TENANTS) if number else TENANTS[-1])
        patience = chance.choice((None, None, None, 0.0, 0.002, 0.01)) if number else None
        with anyio.move_on_after(patience):
            try:
                if chance.random() < 0.3:
                    await create_run(self.store, "go", run_id=run_id, context=context)
                    await self.supervisor.execute(adapter, run_id, policies=POLICIES)
                else:
                    session = f"session-{chance.randrange(RUNS)}"
                    start = self.supervisor.start
                    await start(adapter, "go", run_id=run_id, session_id=session, context=context, policies=POLICIES)
                self.counts["started"] += 1
            except (UsageError, StoreError):  # the session has an active run, or the store is too slow
                self.counts["refused"] += 1
        self.begun += 1

    async def kill(self, number: int) -> None:
        """Cancel a run as soon as one with that id exists, which is while it starts."""
        token, switch = 0, KillSwitch(self.store)
        while self.begun < RUNS:
            try:
                await switch.kill(by="ana", run_id=f"run-{number}", wait_s=0.0)
            except UsageError:
                token = await self.store.wait(token, 0.02)
            else:
                return

    async def order(self) -> None:
        """Cancel the runs of a tenant, again and again."""
        switch = KillSwitch(self.store)
        while self.begun < RUNS:
            await switch.kill(by="ops", tenant=self.chance.choice(TENANTS[:2]), wait_s=0.0)
            self.counts["ordered"] += 1
            await anyio.sleep(self.chance.random() * 0.2)

    async def approve(self) -> None:
        """Answer every approval request."""
        while self.begun < RUNS or not self.counts["answered"]:
            for request in await pending(self.store):
                try:
                    given = ApprovalAnswer(granted=self.chance.random() < 0.5, by="bob")
                    await answer(self.store, request.approval_id, given, wait_s=0.0)
                    self.counts["answered"] += 1
                except (ApprovalError, StoreError):
                    self.counts["too late"] += 1
            await anyio.sleep(0.005)


async def test_no_cancel_of_a_starting_run_is_lost(place: str) -> None:
    """Every run ends once, failed starts leave nothing behind, and the supervisor can be closed."""
    async with open_store(place) as store:
        async with Supervisor(store, max_running=RUNS) as supervisor:
            scene = Scene(store, supervisor)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(scene.order)
                tasks.start_soon(scene.approve)
                for number in range(RUNS):
                    tasks.start_soon(scene.start, number)
                    if number % 2:
                        tasks.start_soon(scene.kill, number)
                    await anyio.sleep(scene.chance.random() * 0.01)
            for tenant in TENANTS:  # each remaining run was cancelled, and is waited for
                outcomes = await supervisor.switch.kill(by="ops", tenant=tenant, wait_s=PATIENCE_S)
                assert [outcome for outcome in outcomes if not outcome.ended] == []
            assert supervisor.statistics().running == 0
        runs, sessions = await whole_record(store)
    assert list(wrong(runs, sessions, unstarted=True)) == []
    assert {run.status for run in runs} <= {"cancelled", "created"}
    assert scene.counts["started"] > 0
    assert scene.counts["answered"] > 0


async def _blocked(store: Store, _: anyio.CancelScope) -> None:
    await KillSwitch(store).block_starts(by="ops", reason="stop", everything=True)


async def _unreadable(_: Store, __: anyio.CancelScope) -> None:
    raise StoreError("not now")


async def _cancelled(_: Store, starting: anyio.CancelScope) -> None:
    starting.cancel()
    await anyio.sleep_forever()


async def test_a_created_run_whose_start_failed_can_be_started_by_anyone(place: str) -> None:
    """Whatever the start failed of, the supervisor continues, and another starts the run or ends it."""
    ways = [(fault, claimed) for fault in (_blocked, _unreadable, _cancelled, None) for claimed in (False, True)]
    async with open_store(place) as store, Supervisor(store) as failing, Supervisor(store) as other:
        for number, (fault, claimed) in enumerate(ways):
            started, killed = f"started-{number}", f"killed-{number}"
            for run_id in (started, killed):
                await _fail_to_start(store, failing, run_id, fault, claimed=claimed)
            handle = await other.execute(FakeAdapter(), started, policies=POLICIES)
            [outcome] = await KillSwitch(store).kill(by="ops", run_id=killed, wait_s=PATIENCE_S)

            assert (await handle.wait()).status == "completed", (fault, claimed)
            assert (outcome.ended, outcome.status) == (True, "cancelled"), (fault, claimed)


async def _fail_to_start(
    store: Store,
    supervisor: Supervisor,
    run_id: str,
    fault: Callable[[Store, anyio.CancelScope], Awaitable[None]] | None,
    *,
    claimed: bool,
) -> None:
    """Create a run in the state after its failed start."""
    await create_run(store, "go", run_id=run_id)
    before = await store.run(run_id)
    if claimed:
        await supervisor.claim(run_id)
    with pytest.MonkeyPatch.context() as patch, anyio.CancelScope() as starting:
        if fault is not None:  # called once it is claimed
            patch.setattr(store, "last_seq", lambda _: fault(store, starting))
        with pytest.raises((StoreError, UsageError, StartsBlockedError)):
            await supervisor.execute(FakeAdapter(), run_id, policies=POLICIES if fault else None)
    assert await store.run(run_id) == before
    await KillSwitch(store).lift(by="ops", everything=True)


@pytest.mark.parametrize("created", [False, True], ids=["start", "execute"])
async def test_a_supervisor_whose_lease_expired_still_starts_runs(place: str, created: bool) -> None:
    """It was suspended, as in a program that blocks its loop. A supervisor that was closed starts nothing."""
    async with open_store(place) as store, Supervisor(store) as supervisor:
        first = await supervisor.start(FakeAdapter(), "go", policies=POLICIES)
        await first.wait()
        run = await store.run(first.run_id)
        assert run is not None
        assert run.owner is not None
        epoch = run.owner.epoch
        await store.renew(epoch, lease_s=-1.0)
        if created:
            await create_run(store, "go", run_id="second")
            second = await supervisor.execute(FakeAdapter(), "second", policies=POLICIES)
        else:
            second = await supervisor.start(FakeAdapter(), "go", run_id="second", policies=POLICIES)
        result = await second.wait()
        await store.release(epoch)
        with pytest.raises(StoreError, match=f"no owner with a lease has epoch {epoch}"):
            await supervisor.start(FakeAdapter(), "go", run_id="third", policies=POLICIES)

        assert (result.status, await store.run("third")) == ("completed", None)
