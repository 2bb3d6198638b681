"""Workers on one store: each queued run is executed once, and continued if its worker died."""

import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from cluster_processes import ASKING, ECHO, over, spec, waiting_approval
from supervised import around

from proctor.adapters.agents.catalog import adapter_named
from proctor.adapters.agents.scripted.adapter import ScriptedAdapter
from proctor.adapters.fleet import Fleet, RunSpec, Worker
from proctor.adapters.fleet.fleet import FleetHandle
from proctor.adapters.fleet.queue import enqueue, waiting
from proctor.adapters.fleet.worker import Starts
from proctor.adapters.operations.service import OperatorService
from proctor.adapters.stores import SQLiteStore
from proctor.policies import Check, Policy, RunContext, parse_policies
from proctor.policies.events import RunCompleted, RunStarted, ToolCallStarted
from proctor.supervisor import KillSwitch, MemoryStore, PolicyViolationError, RunHandle, Store, Supervisor, answer
from proctor.supervisor.errors import StoreError, UsageError
from proctor.supervisor.machine.interface import RunResult
from proctor.supervisor.ports import store as ports
from proctor.supervisor.ports.stored_types import ApprovalAnswer, Block, Owner, RunInfo
from proctor.supervisor.store.invariants import next_of
from proctor.supervisor.store.maintenance import export_lines, import_lines

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def at_work(store: Store, *workers: Worker, **how: Any) -> AsyncIterator[Fleet]:
    """A fleet and its workers on the store: one, unless others are given."""
    workers = workers or (Worker(store, **how),)
    async with anyio.create_task_group() as tasks, Fleet(store) as fleet:
        for worker in workers:
            tasks.start_soon(worker.run)
        yield fleet
        for worker in workers:
            worker.drain()


def blocking(action: str) -> dict[str, Any]:
    """A policy that denies `bash`."""
    return {"name": "none", "rules": [{"type": "blocklist", "tools": ["bash"], "action": action}]}


async def test_a_queued_run_is_executed_with_its_policies(store: SQLiteStore) -> None:
    """By any worker on the store; its result is read from the event log. If a policy ended it, that is raised with
    the result so far, as by a supervisor's handle.
    """
    async with Fleet(store) as before:
        handles = [await before.start(spec()), await before.start(spec(policy=blocking("deny")))]
        ended = await before.start(spec(policy=blocking("cancel")))
        async with at_work(store):
            results = [await handle.wait() for handle in handles]
            with pytest.raises(PolicyViolationError) as raised:
                await ended.wait()

    assert [(result.status, result.output) for result in results] == [("completed", "done")] * 2
    assert [call.name for call in results[0].calls] == ["bash"]
    assert [violation.policy for violation in results[1].policy.violations] == ["none"]
    assert [violation.policy for violation in raised.value.violations] == ["none"]
    assert (raised.value.partial.status, raised.value.partial.calls[0].name) == ("cancelled", "bash")


async def test_each_run_is_executed_by_one_of_several_workers(store: SQLiteStore) -> None:
    """Runs of one session wait for each other, on any worker, in the order in which they were queued. None is
    rejected because another is active.
    """
    runs = [await enqueue(store, spec()) for _ in range(16)]
    runs += [await enqueue(store, spec(), session_id="s") for _ in range(4)]
    workers = [Worker(store, max_running=4) for _ in range(3)]

    async with at_work(store, *workers):
        for run in runs:
            assert (await over(store, run.run_id)).status == "completed"

    for run in runs[:16]:
        assert len([event async for event in store.read(run.session_id) if isinstance(event, RunStarted)]) == 1
    assert [event.run_id async for event in store.read("s") if isinstance(event, RunStarted)] == [
        run.run_id for run in runs[16:]
    ]
    assert sum(worker.finished for worker in workers) == 20


async def test_a_drained_worker_finishes_its_runs_and_claims_no_more(store: SQLiteStore) -> None:
    """Queued runs wait for another worker."""
    first = await enqueue(store, spec(policy=ASKING))
    worker = Worker(store, max_running=1)

    async with at_work(store, worker):
        waits = await waiting_approval(store, first.run_id)
        second = await enqueue(store, spec())
        worker.drain()
        await answer(store, waits.request.approval_id, ApprovalAnswer(granted=True, by="ana"))

    assert (await over(store, first.run_id)).status == "completed"
    left = await store.run(second.run_id)
    assert left is not None
    assert left.status == "created"


async def test_an_imported_run_that_had_ended_is_not_executed_again(store: SQLiteStore, tmp_path: Path) -> None:
    """Not even while its events are not imported yet. One that waited in the queue still waits."""
    async with at_work(store) as fleet:
        done = await fleet.start(spec())
        await done.wait()
    queued = await enqueue(store, spec())
    lines = [line async for line in export_lines(store)]
    async with SQLiteStore(tmp_path / "copy.db") as copy:
        await import_lines(copy, [line for line in lines if not line.startswith(b'{"event":')])
        async with at_work(copy) as fleet:
            waited = await (await fleet.handle(queued.run_id)).wait()
            later = await (await fleet.start(spec())).wait()
        untouched = await copy.run(done.run_id)
        await import_lines(copy, lines)
        ended = await copy.run(done.run_id)
        again = [line async for line in export_lines(copy, session_id=done.session_id)]

    assert (waited.status, later.status) == ("completed", "completed")
    assert untouched is not None
    assert ended is not None
    assert (untouched.status, ended.status) == ("created", "completed")
    assert again[1:] == [line for line in lines if done.session_id.encode() in line]


class MuteError(Exception):
    """An error without a text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(("wrong", "reason"), [
    ({"adapter": "nobody"}, "no adapter is called `nobody`"),
    ({"adapter": "broken"}, "no such thing"),
    ({"adapter": "quits"}, "`SystemExit` was raised"),
    ({"adapter": "mute"}, "a `MuteError` that cannot be shown"),
    ({"adapter": "half"}, r"\ud800"),
    ({"options": {"script": {"steps": 7}}}, "could not be started"),
    ({"policies": ({"name": "p", "limits": {"max_turns": "many"}},)}, "max_turns"),
])  # fmt: skip
async def test_a_run_that_no_worker_can_start_is_ended_with_the_reason(
    store: SQLiteStore, wrong: dict[str, Any], reason: str
) -> None:
    """Whatever its adapter raises. It neither waits for ever nor ends one worker after the other."""
    raised = {
        **{"broken": KeyError("no such thing"), "quits": SystemExit(3)},
        **{"mute": MuteError(), "half": ValueError("\ud800")},
    }

    def made(name: str, **options: Any) -> Any:
        if name in raised:
            raise raised[name]
        return adapter_named(name, **options)

    good = {"adapter": "scripted", "prompt": "Go", "options": {"script": ECHO}, "policies": ({"name": "p"},)}
    async with at_work(store, adapters=made) as fleet:
        bad, fine = await fleet.start(RunSpec(**{**good, **wrong})), await fleet.start(spec())
        result = await bad.wait()
        assert (await fine.wait()).status == "completed"

    assert result.status == "cancelled"
    assert reason in result.reason


async def test_frozen_starts_wait_until_the_freeze_is_lifted(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue does not bypass a freeze, and a frozen run is not lost. Other runs pass it, however long
    the freeze is.
    """
    monkeypatch.setattr(ports, "_PAGE", 1)
    switch = KillSwitch(store)
    scopes: list[Any] = [{"tenant": "acme"}, {"label": "team=x"}]
    for scope in scopes:
        await switch.block_starts(by="ana", reason="incident", **scope)
    free = await enqueue(store, spec(context=RunContext(tenant="other")))
    contexts = (RunContext(tenant="acme"), RunContext(labels={"team": "x"}))
    blocked = [await enqueue(store, spec(context=context)) for context in contexts]

    assert [each.run_id for each in await waiting(store, most=9)] == [free.run_id]
    async with at_work(store, max_running=1):
        assert (await over(store, free.run_id)).status == "completed"
        kept = [await store.run(run.run_id) for run in blocked]
        assert [run and run.status for run in kept] == ["created"] * 2
        for scope in scopes:
            await switch.lift(by="ana", **scope)
        assert {(await over(store, run.run_id)).status for run in blocked} == {"completed"}


@pytest.mark.parametrize("ends", [False, True])
async def test_a_claimed_run_starts_after_a_freeze_or_ends_by_a_cancel(ends: bool) -> None:
    """It starts when the freeze is lifted, or ends at once when it is cancelled, although it was never started."""
    freezes = [Block(scope="all", value="", by="ana")]

    async def claim_run(usual: Any, *run_id: str, **owned: Any) -> Any:
        run = await usual(*run_id, **owned)
        if freezes:
            await store.send_command(freezes.pop())
        return run

    store = around(claim_run=claim_run)
    run = await enqueue(store, spec())
    async with at_work(store):
        while not await store.blocks():
            await store.wait(0, 1.0)
            await anyio.sleep(0.01)
        if ends:
            await OperatorService(store).cancel(run.run_id, by="ana", reason="not any more")
            assert (await over(store, run.run_id)).status == "cancelled"
            return
        await KillSwitch(store).lift(by="ana", everything=True)
        assert (await over(store, run.run_id)).status == "completed"


async def test_a_run_that_its_worker_releases_before_it_reads_a_cancel_ends() -> None:
    """It has no owner then, and no worker starts it while starts are frozen."""

    async def send_command(usual: Any, command: Any) -> Any:
        await store.release_run(run.run_id, epoch=worker.epoch)
        return await usual(command)

    store = around(send_command=send_command)
    run = await enqueue(store, spec())
    worker = await store.register(Owner(owner_id="worker"), lease_s=60)
    await store.claim_run(run.run_id, epoch=worker.epoch)

    await OperatorService(store).cancel(run.run_id, by="ana", reason="not any more")

    assert (await over(store, run.run_id)).status == "cancelled"


async def test_a_run_that_another_worker_tried_meanwhile_is_read_again() -> None:
    """A run is started only in the state that was read: the number of its attempts decides how it is tried."""
    store = MemoryStore()
    run = await enqueue(store, spec())
    [seen] = await waiting(store, most=1)
    other = await store.register(Owner(owner_id="other"), lease_s=60)
    await store.claim_run(run.run_id, epoch=other.epoch)
    await store.release(other.epoch)

    async with Supervisor(store) as supervisor:
        assert await Starts(store).start(supervisor, seen) is None
        [again] = await waiting(store, most=1)
        handle = await Starts(store).start(supervisor, again)
        assert handle is not None
        assert (await handle.wait()).status == "completed"
    assert (seen.attempts, again.attempts) == (0, 1)


@pytest.mark.parametrize("few", [0, 50])
async def test_no_run_of_a_session_with_an_owner_waits_for_a_worker(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """Any number of them blocks no other session. The worker that claimed a run of the session starts that first."""
    monkeypatch.setattr("proctor.adapters.fleet.queue.FEW", few)
    mine, other = [await store.register(Owner(owner_id=name), lease_s=60) for name in ("mine", "other")]
    busy = [await enqueue(store, spec(), session_id=f"s{n}") for n in range(3) for _ in range(2)]
    free = [await enqueue(store, spec(), session_id=id) for id in ("s3", "s3", "s4")]
    for run in busy[::2]:
        await store.claim_run(run.run_id, epoch=other.epoch)
    begun = RunStarted(run_id=busy[0].run_id, session_id="s0")
    await store.append([begun], epoch=other.epoch)
    await store.claim_run(free[1].run_id, epoch=mine.epoch)

    assert [run.run_id for run in await waiting(store, most=2, mine=mine.epoch)] == [run.run_id for run in free[1:]]
    assert [run.run_id for run in await waiting(store, most=2)] == [free[2].run_id]


class Counting(SQLiteStore):
    """Knows which runs were claimed."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.claimed: list[str] = []

    async def claim_run(self, run_id: str, *, epoch: int, lost: bool = False) -> RunInfo:
        self.claimed.append(run_id)
        return await super().claim_run(run_id, epoch=epoch, lost=lost)


async def test_a_worker_reports_that_its_store_is_closed() -> None:
    """In `WorkerStatus.error`."""
    store = MemoryStore()
    run = await enqueue(store, spec(policy=ASKING))

    async def work() -> None:
        with pytest.raises(StoreError, match="the store is closed"):
            await Worker(store).run()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        await waiting_approval(store, run.run_id)
        await store.aclose()


async def test_a_store_that_cannot_be_read_is_reported_once_and_read_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line for every try would be 86,400 a day."""
    reads: list[int] = []

    async def fails(usual: Any, **how: Any) -> Any:
        reads.append(len(reads))
        if len(reads) < 5:
            raise StoreError("the disk is away")
        return await usual(**how)

    monkeypatch.setattr("proctor.adapters.fleet.worker.RETRY_S", 0.01)
    store = around(runs=fails)
    queued = await enqueue(store, spec())
    async with at_work(store) as fleet:
        assert (await (await fleet.handle(queued.run_id)).wait()).status == "completed"
    assert caplog.text.count("worker.store") == 1


async def test_a_run_whose_start_cannot_be_read_keeps_its_slot() -> None:
    """Otherwise the next one would be claimed, and wait for the slot while no other worker could have it."""
    looks: list[str] = []

    async def fails(usual: Any, run_id: str) -> Any:
        looks.append(run_id)
        if len(looks) == 4:  # to claim it, to start it, and then whether it has started
            raise StoreError("no")
        return await usual(run_id)

    store = around(run=fails)
    run = await enqueue(store, spec(policy=ASKING))
    gone = await store.register(Owner(owner_id="gone"), lease_s=60)
    await store.claim_run(run.run_id, epoch=gone.epoch)
    await store.release(gone.epoch)
    worker = Worker(store, max_running=1)
    async with at_work(store, worker):
        asks = await waiting_approval(store, run.run_id)
        await anyio.wait_all_tasks_blocked()
        assert (len(looks) > 3, worker.running) == (True, 1)
        await answer(store, asks.request.approval_id, ApprovalAnswer(granted=True, by="ana"))


async def test_runs_read_ahead_are_not_claimed_while_starts_are_frozen(tmp_path: Path) -> None:
    """A worker may have read thousands, as may every other: they would all claim and release each."""
    async with Counting(tmp_path / "runs.db") as store, Supervisor(store) as supervisor:
        await enqueue(store, spec())
        [ahead] = await waiting(store, most=9)
        await supervisor.switch.block_starts(by="ana", reason="incident", everything=True)

        assert await Starts(store).start(supervisor, ahead) is None
        assert store.claimed == []


async def test_a_session_with_an_unreadable_log_blocks_no_other(tmp_path: Path) -> None:
    """Neither its lost run, for workers and commands that end others, nor its next run, for those behind it."""
    async with Counting(tmp_path / "runs.db") as store:
        gone = await store.register(Owner(owner_id="gone"), lease_s=60)
        for name in ("unreadable", "readable", "next"):
            await store.create_run(RunInfo(run_id=name, session_id=name), epoch=gone.epoch)
            await store.append([RunStarted(run_id=name, session_id=name)], epoch=gone.epoch)
        await store.append([RunCompleted(run_id="next", session_id="next")], epoch=gone.epoch)
        with closing(sqlite3.connect(store.path)) as connection, connection:
            connection.execute("UPDATE events SET data = x'00' WHERE run_id != 'readable'")
        waits = await enqueue(store, spec(), session_id="next")
        await store.release(gone.epoch)
        async with at_work(store) as fleet:
            for _ in range(5):
                assert (await (await fleet.start(spec())).wait()).status == "completed"
            assert (await over(store, "readable")).status == "failed"
        await store.create_run(RunInfo(run_id="created", session_id="created"))
        killed = await KillSwitch(store).kill(by="ana", everything=True, wait_s=1.0)

    assert store.claimed.count(waits.run_id) == 2  # by the worker, and by the process that ends it
    statuses = {run.run_id: run.status for run in killed}
    assert statuses == {"unreadable": "lost", waits.run_id: "cancelled", "created": "cancelled"}


async def test_a_run_is_cancelled_wherever_it_is(store: SQLiteStore) -> None:
    """In the queue, on a worker, and not again once it has ended."""
    async with Fleet(store) as before:
        waits = await before.start(spec())
        assert [one.status for one in await waits.cancel(by="ana")] == ["cancelled"]
    async with at_work(store) as fleet:
        goes_on = await fleet.start(spec(policy=ASKING))
        await waiting_approval(store, goes_on.run_id)
        assert [one.status for one in await goes_on.cancel(by="ana", reason="enough")] == ["cancelled"]
        assert (await goes_on.wait()).reason == "enough"
        assert await goes_on.cancel(by="ana") == []


async def test_approvals_are_answered_by_the_process_that_queued_the_run(store: SQLiteStore) -> None:
    """Its subscriptions have the events of the worker's runs."""
    async with at_work(store) as fleet, fleet.subscribe() as events:
        granted, refused = await fleet.start(spec(policy=ASKING)), await fleet.start(spec(policy=ASKING))
        for handle in (granted, refused):
            await waiting_approval(store, handle.run_id)
        for request in await fleet.approvals():
            if request.run_id == granted.run_id:
                await fleet.approve(request.approval_id, by="ana")
            else:
                await fleet.deny(request.approval_id, by="ana", tell="no")
        assert [call.name for call in (await granted.wait()).calls] == ["bash"]
        assert (await refused.wait()).calls == ()
        async for event in events:
            if isinstance(event, ToolCallStarted):
                break

    assert event.run_id == granted.run_id


async def test_a_result_equals_that_of_a_supervisor(store: SQLiteStore) -> None:
    """With the calls before the run, the action of an approved call, and the same attributes on a policy's error."""
    asking = blocking("request_approval")
    async with at_work(store) as fleet, Supervisor(store=store) as supervisor:
        results: list[list[RunResult]] = [[], []]
        for _ in range(2):
            here = await fleet.start(spec(policy=asking), session_id="fleet")
            there = await supervisor.start(
                ScriptedAdapter(ECHO), "go", policies=parse_policies(asking), session_id="supervisor"
            )
            pairs: list[tuple[FleetHandle | RunHandle, list[RunResult]]] = [(here, results[0]), (there, results[1])]
            for waits, found in pairs:
                await waiting_approval(store, waits.run_id)
                (held,) = [each for each in await fleet.approvals() if each.run_id == waits.run_id]
                await fleet.approve(held.approval_id, by="ana")
                found.append(await waits.wait())
        last = await fleet.start(spec(policy=blocking("cancel")), session_id="fleet")
        with pytest.raises(PolicyViolationError) as raised:
            await last.wait()

    for first, second in results:
        assert [(result.policy.action, len(result.calls_before)) for result in (first, second)] == [
            ("request_approval", 0),
            ("request_approval", 1),
        ]
        assert second.calls_before == first.calls
    assert raised.value.partial.policy.action == "cancel"
    assert len(raised.value.calls_before) == len(raised.value.partial.calls_before) == 2


async def test_queueing_waits_while_too_many_runs_are_queued() -> None:
    """Backpressure: the third is queued when a worker has claimed the first."""
    store, handles = MemoryStore(), list[FleetHandle]()
    async with Fleet(store, max_waiting=2) as fleet:

        async def put_down() -> None:
            handles.append(await fleet.start(spec()))

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(put_down)
            await anyio.wait_all_tasks_blocked()
            assert len(await waiting(store, most=9)) == 2
            async with at_work(store):
                while len(handles) < 3:
                    await store.wait(0, 0.1)
                    await anyio.sleep(0.01)
                assert [(await handle.wait()).status for handle in handles] == ["completed"] * 3


async def test_frozen_runs_do_not_block_queueing_of_others() -> None:
    """The runs of a frozen tenant fill a queue of their own, with the same bound, until the freeze is lifted."""
    store = MemoryStore()
    acme, other = (spec(context=RunContext(tenant=tenant)) for tenant in ("acme", "other"))
    async with Fleet(store, max_waiting=2) as fleet:
        await fleet.switch.block_starts(tenant="acme", by="ana", reason="incident")
        for each in (acme, acme, other):
            await fleet.start(each)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fleet.start, acme)
            await anyio.wait_all_tasks_blocked()
            await fleet.start(other)
            assert len(await store.runs()) == 4
            await fleet.switch.lift(tenant="acme", by="ana")

    assert len(await store.runs()) == 5


@pytest.mark.parametrize("more", [{"adapter": "shell", "options": {}}, {"continuation": "none"}])
async def test_a_run_whose_agent_cannot_be_resumed_is_lost(store: SQLiteStore, more: dict[str, Any]) -> None:
    """A command line is not repeated, and a run that disables continuation is not continued."""
    assert next_of(await enqueue(store, spec(**more))) is None


async def test_a_spec_contains_only_data(store: SQLiteStore) -> None:
    """A Python check, an unknown field, or no policy is rejected when the run is queued."""
    with pytest.raises(UsageError, match="check in Python"):
        RunSpec.of("scripted", "Go", policies=[Policy(name="p", rules=(Check(check=lambda call: True),))])
    with pytest.raises(UsageError, match="unknown key `colour`"):
        RunSpec.of("scripted", "Go", policies=[Policy(name="p")], colour="red")
    with pytest.raises(UsageError, match="no policy"):
        RunSpec.of("scripted", "Go", policies=[])
    with pytest.raises(UsageError, match="no policy"):
        await enqueue(store, RunSpec(adapter="scripted", prompt="Go"))
    with pytest.raises(UsageError, match="unknown key `policy`"):
        RunSpec.of("scripted", "Go", policies=[Policy(name="p")], policy=Policy(name="q"))
    assert [policy["name"] for policy in RunSpec.of("scripted", "Go", policies=()).policies] == ["no policy"]


async def test_mistakes_are_reported(store: SQLiteStore) -> None:
    """A missing run, an existing id, an invalid number."""
    async with Fleet(store) as fleet:
        await fleet.start(spec(), run_id="r")
        with pytest.raises(UsageError, match="there is no run `nobody`"):
            await fleet.handle("nobody")
        with pytest.raises(StoreError) as raised:
            await fleet.start(spec(), run_id="r")
        assert (await (await fleet.handle("r")).info()).status == "created"
    assert raised.value.kind == "run_exists"
    with pytest.raises(UsageError, match="max_waiting is 0"):
        Fleet(store, max_waiting=0)


async def test_without_a_cluster_ray_is_not_imported() -> None:
    """Runs are queued and executed without it. If a cluster is used and Ray is missing, the error says so."""
    program = """
import sys
sys.modules["ray"] = None  # as if it were not installed
import anyio
from proctor.adapters.fleet import Fleet, RunSpec, Worker
from proctor.policies import parse_policies
from proctor.supervisor import MemoryStore, UsageError

async def main():
    store = MemoryStore()
    script = {"steps": [{"output": "done"}]}
    spec = RunSpec.of("scripted", "Go", policies=parse_policies("name: p"), options={"script": script})
    async with Fleet(store) as fleet, anyio.create_task_group() as tasks:
        worker = Worker(store)
        tasks.start_soon(worker.run)
        print((await (await fleet.start(spec)).wait()).status)
        worker.drain()
        try:
            await fleet.status()
        except UsageError as error:
            print(error)

anyio.run(main)
"""
    done = await anyio.run_process([sys.executable, "-c", program], check=True)
    assert (
        done.stdout.decode()
        == "completed\nfleets on a cluster need Ray; in your clone of proctor, run pip install '.[ray]'\n"
    )
