"""A run has one owner: it is claimed once, lost when its owner is gone, and then ended by whoever notices."""

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import anyio
import pytest
import trio
import trio.testing
from answering import until_held
from msgspec.structs import replace
from stored_rows import stored_events
from supervised import OPEN, around, denying, held_up

from proctor.policies import Limits, Policy
from proctor.policies import events as ev
from proctor.policies.events.calls import input_digest
from proctor.supervisor import KillSwitch, MemoryStore, Supervisor, create_run, execute_run, run_once
from proctor.supervisor.control.approval_inbox import answer, pending
from proctor.supervisor.control.ownership import LEASE_S, Ownership, reap, withdraw_created
from proctor.supervisor.errors import ApprovalError, StoreError, StoreErrorKind, UsageError
from proctor.supervisor.log import logger
from proctor.supervisor.ports.processes import leave, run_of
from proctor.supervisor.ports.stored_types import ApprovalAnswer, Cancel, Owner, RunInfo
from proctor.supervisor.testing.fakes import Ask, FakeAdapter, Pause

anyone = pytest.mark.anyio


async def ends(store: MemoryStore, session_id: str) -> list[type[ev.Event]]:
    return [type(event) for event in await stored_events(store, session_id) if isinstance(event, ev.TERMINAL)]


class Leaseless(MemoryStore):
    """Once `silent`, it neither renews a lease nor releases a run, so its owners seem dead."""

    silent = False

    async def renew(self, epoch: int, *, lease_s: float) -> None:
        if self.silent:
            raise StoreError("the network is down")
        await super().renew(epoch, lease_s=lease_s)


@anyone
async def test_a_run_released_before_it_started_is_not_lost() -> None:
    """It is not ended, and any supervisor can start it."""
    store = MemoryStore()
    run_id = await create_run(store, "go")
    owner = await store.register(Owner(owner_id="left"), lease_s=3600)
    await store.claim_run(run_id, epoch=owner.epoch)
    await store.release(owner.epoch)

    assert await reap(store) == []
    assert (await execute_run(store, FakeAdapter(), run_id, policies=[OPEN])).status == "completed"


@anyone
async def test_a_session_has_one_run_at_a_time() -> None:
    """Two `run_once` in one process do not double what a session may do."""
    store = MemoryStore()
    policy = Policy(name="p", limits=Limits(max_tool_calls=3))
    adapter = FakeAdapter([Ask(id=f"c{n}", name="read") for n in range(3)])
    refused: list[str] = []

    async def once() -> None:
        try:
            await run_once(adapter, "go", policies=[policy], store=store, session_id="s")
        except UsageError as error:
            refused.append(str(error))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(once)
        tasks.start_soon(once)

    assert len(adapter.ran) == 3
    assert len(refused) == 1
    assert "session `s` already has a run that is not over" in refused[0]
    assert len(await store.runs()) == 1


def slow(*seconds: float) -> Any:
    """A store method that takes this many seconds longer: each of its calls in turn, and then as the last."""
    left = list(seconds)

    async def later(usual: Any, *given: Any, **more: Any) -> Any:
        await anyio.sleep(left.pop(0) if len(left) > 1 else left[0])
        return await usual(*given, **more)

    return later


@pytest.mark.trio
@pytest.mark.parametrize("how", [{}, {"lost_runs": slow(10 * LEASE_S)}, {"renew": slow(0, 1000 * LEASE_S, 0)}])
async def test_a_live_owner_keeps_its_runs(how: dict[str, Any], autojump_clock: object) -> None:
    """Its lease is renewed, also during a slow search for lost runs, and after a renewal without an answer."""
    store = around(**how)
    async with Supervisor(store) as supervisor:
        handle = await supervisor.start(FakeAdapter([Pause(100 * LEASE_S)]), "go", policies=[OPEN])
        for _ in range(50):
            await trio.sleep(2 * LEASE_S - 0.1)
            run = await store.run(handle.run_id)
            assert run is not None
            assert run.status == "running"
            assert await MemoryStore.lost_runs(store) == []
        result = await handle.wait()

    assert result.status == "completed"
    assert run.owner is not None
    with pytest.raises(StoreError, match="no owner with a lease"):
        await store.renew(run.owner.epoch, lease_s=LEASE_S)


@pytest.mark.trio
async def test_a_search_for_lost_runs_without_an_answer_is_repeated(autojump_clock: object) -> None:
    """It would keep every later one waiting, and each start under a shared budget."""
    store = around(lost_runs=slow(1000 * LEASE_S, 0))
    gone = await store.register(Owner(owner_id="gone"), lease_s=LEASE_S)
    await store.create_run(RunInfo(run_id="left", session_id="s"), epoch=gone.epoch)
    await store.append([ev.RunStarted(run_id="left", session_id="s")], epoch=gone.epoch)
    await store.release(gone.epoch)
    async with Supervisor(store) as supervisor:
        await supervisor.start(FakeAdapter([Pause(10 * LEASE_S)]), "go", policies=[OPEN])

    assert await ends(store, "s") == [ev.RunFailed]


@pytest.mark.trio
async def test_another_supervisor_ends_lost_runs_and_their_old_owner_is_fenced(autojump_clock: object) -> None:
    """There is one terminal event, and a call that the old owner's agent proposes later does not run."""
    store = Leaseless()
    adapter = FakeAdapter([Ask(id="c1", name="read"), Pause(10 * LEASE_S), Ask(id="c2", name="read")])
    async with Supervisor(store) as old:
        handle = await old.start(adapter, "go", policies=[OPEN], session_id="s")
        await trio.sleep(1)
        store.silent = True
        await trio.sleep(LEASE_S)
        async with Supervisor(store) as other:
            await run_once(FakeAdapter(), "another", policies=[OPEN], store=store)
            await (await other.start(FakeAdapter([Pause(1)]), "go", policies=[OPEN])).wait()
        lost = await store.run(handle.run_id)
        with pytest.raises(StoreError) as raised:
            await handle.wait()

    assert lost is not None
    assert lost.status == "failed"
    assert raised.value.kind == "fenced"
    assert [call.id for call in adapter.ran] == ["c1"]
    (end,) = [event for event in await stored_events(store, "s") if isinstance(event, ev.TERMINAL)]
    assert isinstance(end, ev.RunFailed)
    assert end.error["code"] == "owner_lost"
    assert [event.seq for event in await stored_events(store, "s")] == list(range(1, end.seq + 1))


async def lost_run_id(store: MemoryStore, adapter: FakeAdapter, policy: Policy, session_id: str = "s") -> str:
    """The id of a run whose supervisor vanished while it was active."""
    owner = await store.register(Owner(owner_id="gone"), lease_s=3600)
    run = RunInfo(run_id="left", session_id=session_id, spec={"prompt": "go"})
    await store.create_run(run, epoch=owner.epoch)
    async with Supervisor(MemoryStore()) as elsewhere:
        handle = await elsewhere.start(adapter, "go", policies=[policy], session_id=session_id, run_id="left")
        await until_held(elsewhere)
        recorded = [event async for event in elsewhere._store.read(session_id)]
        await handle.cancel()
    await store.append(recorded, epoch=owner.epoch)
    await store.release(owner.epoch)
    return "left"


@anyone
async def test_a_pending_call_of_a_lost_run_is_asked_again() -> None:
    """Nobody can answer for the lost owner. The next run of the session requests the approval again."""
    store, asking = MemoryStore(), denying("request_approval")
    steps = [Ask(id="c1", name="bash", input={"command": "rm x"})]
    run_id = await lost_run_id(store, FakeAdapter(steps), asking)
    (request,) = await pending(store)
    with pytest.raises(ApprovalError, match="is gone; a run that resumes its session asks again") as raised:
        await answer(store, request.approval_id, ApprovalAnswer(granted=True, by="ana"))

    adapter = FakeAdapter(steps)
    async with Supervisor(store) as supervisor:
        handle = await supervisor.start(adapter, "go on", policies=[asking], session_id="s", continuation="none")
        again = await until_held(supervisor)
        unanswered = list(adapter.ran)
        await supervisor.approve(again.approval_id, by="ana")
        await handle.wait()
    events = await stored_events(store, "s")

    assert raised.value.kind == "owner_gone"
    assert again.approval_id != request.approval_id
    assert (unanswered, [call.id for call in adapter.ran]) == ([], ["c1"])
    assert [type(event) for event in events if isinstance(event, ev.TERMINAL)] == [ev.RunFailed, ev.RunCompleted]
    (closed,) = [event for event in events if isinstance(event, ev.ToolApprovalExpired)]
    assert (closed.approval_id, closed.withdrawn, closed.run_id) == (request.approval_id, True, run_id)
    assert [e.run_id for e in events if isinstance(e, ev.ToolCallStarted)] == [handle.run_id]
    assert len([e for e in events if isinstance(e, ev.ToolApprovalRequested)]) == 2


@anyone
@pytest.mark.parametrize(("reported", "own"), [((150,), 50), ((150, 160), 60), ((40,), 40)])
async def test_a_lost_run_is_charged_only_for_its_own_usage(reported: tuple[int, ...], own: int) -> None:
    """Of a total that continues over runs, only the difference; of one that starts at zero, all."""

    def cumulative(tokens: int) -> ev.TokenUsageUpdated:
        return ev.TokenUsageUpdated(scope="cumulative", input_tokens=tokens)

    store = MemoryStore()
    given: Any = {"policies": [OPEN], "store": store, "session_id": "s", "continuation": "replay"}
    await run_once(FakeAdapter([cumulative(100)]), "go", **given)
    owner = await store.register(Owner(owner_id="gone"), lease_s=3600)
    run = await store.create_run(RunInfo(run_id="left", session_id="s"), epoch=owner.epoch)
    ids: Any = {"session_id": "s", "run_id": run.run_id}
    await store.append(
        [ev.RunStarted(**ids), *(replace(cumulative(each), **ids) for each in reported)], epoch=owner.epoch
    )
    await store.release(owner.epoch)

    assert [run.run_id for run in await reap(store)] == ["left"]
    lost = await store.run("left")
    assert lost is not None
    assert lost.usage.total_tokens == own


@anyone
async def test_a_subscription_to_a_lost_run_ends() -> None:
    """Whether or not the run has been ended meanwhile."""
    store = MemoryStore()
    run_id = await lost_run_id(store, FakeAdapter([Ask(id="c1", name="bash")]), denying("request_approval"))
    async with Supervisor(store) as supervisor, supervisor.subscribe(run_id=run_id) as events:
        seen = [event async for event in events]

    assert seen[-1].type == "tool_approval_requested"


@anyone
async def test_orphan_processes_of_a_lost_run_are_ended_and_reported() -> None:
    """By the process that ends the run; the event log has the outcome."""
    store = MemoryStore()
    run_id = await lost_run_id(store, FakeAdapter([Ask(id="c1", name="bash")]), denying("request_approval"))
    marks: list[str] = []

    async def end_orphans(mark: str) -> dict[str, Any]:
        marks.append(mark)
        return {"killed": [4711]}

    ended = [await reap(store, end_orphans=end_orphans), await reap(store, end_orphans=end_orphans)]
    end = (await stored_events(store, "s"))[-1]

    assert ([[run.run_id for run in runs] for runs in ended], [run_of(mark) for mark in marks]) == (
        [[run_id], []],
        [run_id],
    )
    assert isinstance(end, ev.RunFailed)
    assert end.error["details"] == {"killed": [4711]}


@anyone
@pytest.mark.parametrize("kills", [False, True])
async def test_orphan_processes_that_cannot_be_ended_do_not_keep_other_lost_runs(kills: bool) -> None:
    """Their run stays lost, as its agent may still act. Ending that run alone reports the error."""
    store = MemoryStore()
    owner = await store.register(Owner(owner_id="gone"), lease_s=3600)
    for name in ("first", "second"):
        await store.create_run(RunInfo(run_id=name, session_id=name), epoch=owner.epoch)
        await store.append([ev.RunStarted(run_id=name, session_id=name)], epoch=owner.epoch)
    await store.release(owner.epoch)

    async def end_orphans(mark: str) -> dict[str, Any]:
        if run_of(mark) == "first":
            raise OSError("no")
        return {}

    if kills:
        await KillSwitch(store, end_orphans=end_orphans).kill(by="ana", everything=True, wait_s=0.5)
    else:
        await reap(store, end_orphans=end_orphans)
    with pytest.raises(OSError, match="no"):
        await reap(store, end_orphans=end_orphans)

    assert [(run.run_id, run.status) for run in await store.runs()] == [("second", "failed"), ("first", "lost")]


class Ending:
    """Ends orphan processes when it is let, and signals when it was called."""

    def __init__(self) -> None:
        self.was_requested, self.let = anyio.Event(), anyio.Event()

    async def end_orphans(self, mark: str) -> dict[str, Any]:
        self.was_requested.set()
        await self.let.wait()
        return {}


@anyone
@pytest.mark.parametrize("finishes", [True, False])
async def test_a_start_waits_while_another_owner_ends_the_lost_run_of_its_session(finishes: bool) -> None:
    """Then it continues. If that owner has gone, it ends the lost run itself."""
    store, ending, handles = MemoryStore(), Ending(), []
    await lost_run_id(store, FakeAdapter([Ask(id="c1", name="bash")]), denying("request_approval"))
    async with Supervisor(store) as supervisor, anyio.create_task_group() as tasks:

        async def start() -> None:
            options: Any = {"policies": [OPEN], "session_id": "s", "continuation": "none"}
            handles.append(await supervisor.start(FakeAdapter(), "go on", **options))

        async with anyio.create_task_group() as elsewhere:
            elsewhere.start_soon(partial(reap, store, end_orphans=ending.end_orphans))
            await ending.was_requested.wait()
            tasks.start_soon(start)
            await anyio.wait_all_tasks_blocked()
            waited = list(handles)
            if finishes:
                ending.let.set()
            else:
                elsewhere.cancel_scope.cancel()
    events = await stored_events(store, "s")

    assert waited == []
    assert [(await handle.wait()).status for handle in handles] == ["completed"]
    assert [type(event) for event in events if isinstance(event, ev.TERMINAL)] == [ev.RunFailed, ev.RunCompleted]


@pytest.mark.trio
async def test_a_start_takes_over_a_lost_run_that_another_owner_never_ends(autojump_clock: object) -> None:
    """That owner's lease runs out, so the session is not blocked for ever."""
    store, ending = MemoryStore(), Ending()
    await lost_run_id(store, FakeAdapter([Ask(id="c1", name="bash")]), denying("request_approval"))
    async with Supervisor(store) as supervisor, anyio.create_task_group() as elsewhere:
        elsewhere.start_soon(partial(reap, store, end_orphans=ending.end_orphans))
        await ending.was_requested.wait()
        options: Any = {"policies": [OPEN], "session_id": "s", "continuation": "none"}
        handle = await supervisor.start(FakeAdapter(), "go on", **options)
        result = await handle.wait()
        ending.let.set()

    assert result.status == "completed"
    assert [type(e) for e in await stored_events(store, "s") if isinstance(e, ev.TERMINAL)] == [
        ev.RunFailed,
        ev.RunCompleted,
    ]


@anyone
async def test_a_cancelled_start_leaves_no_created_run() -> None:
    """Whenever it is cancelled, the run was either never stored or has ended."""
    for checkpoints in range(1, 12):
        store = MemoryStore()
        async with Supervisor(store) as supervisor, anyio.create_task_group() as tasks:

            async def start(supervisor: Supervisor = supervisor) -> None:
                await supervisor.start(FakeAdapter([Pause()]), "go", policies=[OPEN], session_id="s")

            tasks.start_soon(start)
            for _ in range(checkpoints):
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
            await supervisor.cancel_all()
        statuses = [run.status for run in await store.runs()]

        assert set(statuses) <= {"cancelled"}
        assert await ends(store, "s") == [ev.RunCancelled] * len(statuses)


@anyone
async def test_a_start_cancelled_while_the_store_creates_its_run_is_withdrawn() -> None:
    """The store may still store the run after its caller stopped waiting."""

    async def cancelled(create_run: Any, *run: Any, **more: Any) -> Any:
        stored = await create_run(*run, **more)
        tasks.cancel_scope.cancel()
        await anyio.lowlevel.cancel_shielded_checkpoint()
        return stored

    store, adapter = around(create_run=cancelled), FakeAdapter()
    async with Supervisor(store) as supervisor:
        async with anyio.create_task_group() as tasks:
            await supervisor.start(adapter, "go", policies=[OPEN], session_id="s")
        (run,) = await store.runs()
        again = await supervisor.start(adapter, "go", policies=[OPEN], session_id="s", run_id="next")
        await again.wait()

    assert run.status == "cancelled"
    assert len(adapter.launches) == 1


@anyone
async def test_a_cancel_between_creation_and_start_is_honoured() -> None:
    """With any scope. The agent is not started, and the event log has the reason."""
    for scope in ("run", "session", "all"):
        store, adapter = MemoryStore(), FakeAdapter()
        run_id = await create_run(store, "go", session_id="s")
        value = {"run": run_id, "session": "s", "all": ""}[scope]
        order: Any = {"scope": scope, "value": value, "by": "ana", "reason": "not today"}
        await store.send_command(Cancel(**order))
        result = await execute_run(store, adapter, run_id, policies=[OPEN])

        assert (result.status, result.reason) == ("cancelled", "not today")
        assert adapter.launches == []


@anyone
async def test_an_approval_of_a_run_that_nobody_owns_is_not_answered() -> None:
    """Nobody would act on it."""
    store = MemoryStore()
    ids: dict[str, Any] = {"run_id": "r", "session_id": "s"}
    request = ev.ToolApprovalRequested(
        **ids, approval_id="r.1", tool_call_id="c", tool_name="x", input_digest=input_digest({}), held=True
    )
    await store.append([ev.RunStarted(**ids), request])
    with pytest.raises(ApprovalError, match="nobody owns its run") as raised:
        await answer(store, "r.1", ApprovalAnswer(granted=True, by="ana"))

    assert raised.value.kind == "owner_gone"
    assert len(await pending(store)) == 1


def recording_reads(reads: list[list[int]]) -> Any:
    """A store's method `commands` that also appends the number of each returned command."""

    async def commands(usual: Any, **which: Any) -> Any:
        found = await usual(**which)
        reads.append([command.number for command in found])
        return found

    return commands


@anyone
async def test_an_old_cancel_command_ends_no_later_run_and_is_not_read_again() -> None:
    """Whether it is for all runs or one session, and whatever its date. Thousands of them cost nothing."""
    reads: list[list[int]] = []
    store = around(commands=recording_reads(reads))
    for _ in range(2000):
        await store.send_command(Cancel(scope="all"))
    await store.send_command(Cancel(scope="session", value="s"))
    result = await run_once(FakeAdapter([Ask(id="c1", name="x")]), "go", policies=[OPEN], store=store, session_id="s")

    assert result.status == "completed"
    assert not any(reads)


@pytest.mark.trio
async def test_each_command_is_read_once_without_polling(autojump_clock: object) -> None:
    """An idle supervisor waits until the store notifies it, and reads commands only if there are any."""
    reads: list[list[int]] = []
    store = around(commands=recording_reads(reads))
    async with Supervisor(store) as supervisor:
        handle = await supervisor.start(FakeAdapter([Pause(600)]), "go", policies=[OPEN])
        for _ in range(2):
            await trio.sleep(60)
            await store.send_command(Cancel(scope="session", value="another"))
        await handle.wait()

    assert reads == [[1], [2]]


@pytest.mark.trio
async def test_an_unreadable_command_delays_none_behind_it(autojump_clock: object) -> None:
    """The readable ones before it are given first, as stores do."""

    async def commands(usual: Any, *, after: int = 0) -> Any:
        found = await usual(after=after)
        if found and found[0].number == 2:
            raise StoreError("command 2 was changed", kind="no_command")
        return [command for command in found if command.number < 2] or found

    store = around(commands=commands)
    async with Supervisor(store) as supervisor:
        handle = await supervisor.start(FakeAdapter([Pause(30)]), "go", policies=[OPEN])
        await trio.testing.wait_all_tasks_blocked()
        for value in ("other", "unreadable", handle.session_id):
            await store.send_command(Cancel(scope="session", value=value))
        began = trio.current_time()
        result = await handle.wait()

    assert result.status == "cancelled"
    assert trio.current_time() - began < 5


@anyone
async def test_an_owner_that_is_registered_after_it_left_does_not_stay() -> None:
    """Its supervisor was left while the store was slow: nobody would renew the lease."""
    store, registering, goes_on = held_up("register")
    kinds: list[str] = []
    registered: list[Owner] = []
    ownership = Ownership(store, logger(), registered=registered.append)

    async def own() -> None:
        try:
            await ownership.owner()
        except StoreError as error:
            kinds.append(error.kind)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(own)
        await registering.wait()
        await ownership.leave()
        goes_on.set()

    assert (kinds, registered, ownership.epoch) == (["closed"], [], 0)
    with pytest.raises(StoreError, match="no owner with a lease"):
        await store.renew(1, lease_s=LEASE_S)


@anyone
async def test_a_run_that_was_started_before_is_continued_by_its_session() -> None:
    """The error names the session: whoever executes a lost run again wants to go on."""
    store = MemoryStore()
    await lost_run_id(store, FakeAdapter([Ask(id="c1", name="bash")]), denying("request_approval"), "shop")
    with pytest.raises(UsageError, match="it is lost; a new run of session `shop` can continue it"):
        await execute_run(store, FakeAdapter(), "left", policies=[OPEN])

    again = await run_once(FakeAdapter(), "go on", policies=[OPEN], store=store, session_id="shop")

    assert again.status == "completed"


@anyone
async def test_a_created_run_that_was_started_meanwhile_is_not_started_again() -> None:
    """It was started between the check and the claim, and its owner was killed, so it is lost."""

    async def begun_after(run: Any, run_id: str) -> Any:
        seen = await run(run_id)
        if seen is not None and seen.status == "created":
            owner = await store.register(Owner(owner_id="quick"), lease_s=3600)
            await store.claim_run(run_id, epoch=owner.epoch)
            await store.append([ev.RunStarted(run_id=run_id, session_id="s")], epoch=owner.epoch)
            await store.release(owner.epoch)
        return seen

    store, adapter = around(run=begun_after), FakeAdapter()
    run_id = await create_run(store, "go", session_id="s")
    with pytest.raises(UsageError, match="was started before"):
        await execute_run(store, adapter, run_id, policies=[OPEN])

    assert adapter.launches == []
    assert await ends(store, "s") in ([], [ev.RunFailed])


@anyone
@pytest.mark.parametrize(
    ("kind", "settled"), [("fenced", True), ("closed", True), ("unwritable", False), (None, True)]
)
async def test_a_failed_renewal_is_retried_soon_unless_the_lease_is_gone(
    kind: StoreErrorKind | None, settled: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A released owner and a closed store give the same answer each time. The log has it once."""

    async def refuses(*_: Any, **lease: Any) -> None:
        if kind is not None:
            raise StoreError("no", kind=kind)

    ownership = Ownership(around(renew=refuses), logger(), registered=lambda owner: None)
    owner = await ownership.owner()
    try:
        assert [await ownership._renewed(), await ownership._renewed()] == [settled, settled]
    finally:
        leave(owner)

    assert caplog.text.count("lease.not_renewed") == (kind is not None)


@pytest.mark.trio
@pytest.mark.parametrize("by_order", [False, True])
async def test_ending_runs_for_longer_than_a_lease_ends_them_all(by_order: bool, autojump_clock: object) -> None:
    """Lost runs and unstarted ones. A process that only ends runs does not renew a lease."""
    store = around(claim_run=slow(LEASE_S * 0.6))
    gone = (await store.register(Owner(owner_id="gone"), lease_s=LEASE_S)).epoch
    for n in range(4):
        await store.create_run(RunInfo(run_id=f"lost{n}", session_id=f"s{n}"), epoch=gone)
        await store.append([ev.RunStarted(run_id=f"lost{n}", session_id=f"s{n}")], epoch=gone)
        await create_run(store, "go")
    await store.release(gone)
    if by_order:
        await KillSwitch(store).kill(by="ana", everything=True, wait_s=1000.0)
    else:
        await reap(store)
        await withdraw_created(store, older_than=timedelta(0), now=datetime.max.replace(tzinfo=UTC))

    assert [run.status for run in await store.runs()] == ["cancelled", "failed"] * 4


@pytest.mark.trio
async def test_many_ownerless_runs_are_ended_concurrently(autojump_clock: object) -> None:
    """Those of one session in turn, since a claim of one excludes the others. Commits are slow."""
    store, began = around(claim_run=slow(1)), trio.current_time()
    for n in range(100):
        await store.create_run(RunInfo(run_id=f"r{n}", session_id=f"s{n // 2}", created_at=datetime.now(UTC)))
    ended = await withdraw_created(store, older_than=timedelta(0))

    assert [run.run_id for run in ended] == [f"r{n}" for n in range(100)]
    assert trio.current_time() - began < 10
