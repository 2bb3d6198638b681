"""Workers that die by themselves, by a process they started, or with their database."""

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import anyio
import pytest
from cluster_processes import ASKING, PROGRAM, check_record, over, spec, waiting_approval, working
from cutting_proxy import CuttingProxy
from postgres_server import OwnServer, needs_own_server, needs_postgres
from stopping import stop_between_writes

from proctor.adapters.fleet import Fleet, RunSpec
from proctor.adapters.fleet.fleet import FleetHandle
from proctor.adapters.fleet.worker import ATTEMPTS
from proctor.adapters.operations.service import OperatorService
from proctor.adapters.stores import open_store
from proctor.adapters.stores.audit.audit import audited
from proctor.adapters.stores.store_names import is_url
from proctor.policies import parse_policies
from proctor.policies.events import TERMINAL, RunStarted, ToolCallStarted
from proctor.supervisor import ApprovalError, KillSwitch, OwnerLostError, Store
from proctor.supervisor.control.ownership import reap
from proctor.supervisor.ports.stored_types import NOT_OVER
from proctor.supervisor.store.invariants import next_of
from tests.forked_programs import Forked

NEEDS_OWN_SERVER: pytest.MarkDecorator = needs_own_server
pytestmark = pytest.mark.anyio


EITHER: pytest.MarkDecorator = pytest.mark.parametrize(
    ("anyio_backend", "place"),
    [("trio", "sqlite"), pytest.param("asyncio", "postgres", marks=needs_postgres)],
    indirect=["place"],
)


def stop(process: Forked, place: str) -> None:
    """SIGSTOP, where others can continue."""
    if is_url(place):
        process.send_signal(signal.SIGSTOP)
    else:
        stop_between_writes(process, Path(place))


@EITHER
async def test_a_killed_workers_run_is_continued_and_its_pending_call_asked_again(place: str) -> None:
    """The call runs once, after the new run's request is approved."""
    async with open_store(place) as store, Fleet(store) as fleet:
        handle = await fleet.start(spec(policy=ASKING))
        with working(place) as process:
            before = await waiting_approval(store, handle.run_id)
            process.kill()
            process.wait()
        with working(place):
            after = await waiting_approval(store, f"{handle.run_id}.2")
            await fleet.approve(after.request.approval_id, by="ana")
            result = await handle.wait()

        lost = await store.run(handle.run_id)
        asked_first = await store.approval(before.request.approval_id)
        calls = [event async for event in store.read(handle.session_id) if isinstance(event, ToolCallStarted)]
        started = [event async for event in store.read(handle.session_id) if isinstance(event, RunStarted)]

    assert lost is not None
    assert (lost.status, result.status) == ("failed", "completed")
    assert (result.run_id, result.session_id) == (f"{handle.run_id}.2", handle.session_id)
    assert asked_first is not None
    assert asked_first.state == "withdrawn"
    assert [call.run_id for call in calls] == [result.run_id]
    assert [event.metadata.get("continuation") for event in started] == [None, "replay"]


@EITHER
async def test_a_run_is_continued_as_often_as_its_spec_says(place: str) -> None:
    """Then it stays failed, with the reason."""
    async with open_store(place) as store, Fleet(store) as fleet:
        handle = await fleet.start(spec(policy=ASKING, take_overs=1))
        for run_id in (handle.run_id, f"{handle.run_id}.2"):
            with working(place) as process:
                await waiting_approval(store, run_id)
                process.kill()
                process.wait()
            assert [one.run_id for one in await reap(store)] == [run_id]
        last = await over(store, f"{handle.run_id}.2")
        with pytest.raises(OwnerLostError, match="the run was lost"):
            await handle.wait()
        third = await store.run(f"{handle.run_id}.3")

    assert last.status == "failed"
    assert next_of(last) is None
    assert third is None


@EITHER
async def test_a_lost_run_that_was_cancelled_is_not_continued(place: str) -> None:
    """The command counts although no owner read it. If the run was continued already, it cancels the new run, which
    its caller knows by no other id.
    """
    async with open_store(place) as store, Fleet(store) as fleet:
        handles = [await fleet.start(spec(policy=ASKING)) for _ in range(4)]
        with working(place) as process:
            for each in handles:
                await waiting_approval(store, each.run_id)
            process.kill()
            process.wait()
        handle, other, shown, shown_late = handles
        operator = OperatorService(store)
        await handle.cancel(by="ana")
        await operator.cancel(shown.run_id, by="ana", reason="enough")
        await reap(store)
        outcomes = await KillSwitch(store).kill(by="ana", run_id=other.run_id)
        late = await operator.cancel(shown_late.run_id, by="ana", reason="enough")

        for each in (handle, shown):
            assert (await over(store, each.run_id)).status == "failed"
            assert await store.run(f"{each.run_id}.2") is None
        assert [(one.run_id, one.status) for one in outcomes] == [(f"{other.run_id}.2", "cancelled")]
        assert late.run_id == f"{shown_late.run_id}.2"
        assert [(await each.wait()).status for each in (other, shown_late)] == ["cancelled"] * 2


@EITHER
async def test_a_worker_suspended_beyond_its_lease_allows_nothing_afterwards(place: str) -> None:
    """Its run is continued elsewhere by then. The worker continues with others."""
    async with open_store(place) as store, Fleet(store) as fleet:
        handle = await fleet.start(spec(policy=ASKING))
        with working(place, lease_s=8) as stopped:
            before = await waiting_approval(store, handle.run_id)
            stop(stopped, place)
            with working(place):
                after = await waiting_approval(store, f"{handle.run_id}.2")
                await fleet.approve(after.request.approval_id, by="ana")
                assert (await handle.wait()).status == "completed"
            stopped.send_signal(signal.SIGCONT)
            with pytest.raises(ApprovalError):
                await fleet.approve(before.request.approval_id, by="ana")
            assert (await (await fleet.start(spec())).wait()).status == "completed"  # no other worker is there

        events = [event async for event in store.read(handle.session_id)]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.run_id for event in events if isinstance(event, ToolCallStarted)] == [f"{handle.run_id}.2"]
    ends = [event.run_id for event in events if isinstance(event, TERMINAL)]
    assert ends == [handle.run_id, f"{handle.run_id}.2"]


@pytest.fixture
def anyio_backend() -> str:
    """For the tests; the workers use asyncio."""
    return "asyncio"


@pytest.fixture(scope="module")
def server() -> Iterator[OwnServer]:
    """PostgreSQL, to be killed and cut off."""
    with OwnServer() as server:
        yield server


def poison(how: str) -> RunSpec:
    """A run that ends its worker."""
    options = {"loop": f"loops:{how}"}
    return RunSpec.of("function", "Go", policies=parse_policies("name: p"), options=options, take_overs=1)


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
async def test_a_run_that_ends_its_worker_is_tried_a_few_times_and_harms_no_other(place: str) -> None:
    """An import crashes, memory runs out, or it exits once it has started. Runs queued beside it complete."""
    async with open_store(place) as store, Fleet(store) as fleet:
        bad = [await fleet.start(poison(how)) for how in ("segfault", "out_of_memory")]
        good = [await fleet.start(spec()) for _ in range(6)]
        late = await fleet.start(poison("late"))

        deaths = await worked_off(place, store, [*bad, *good, late])

        assert deaths <= len(bad) * ATTEMPTS + 2
        for handle in bad:
            run = await handle.info()
            assert (run.run_id, run.status, run.attempts) == (handle.run_id, "failed", ATTEMPTS + 1)
            with pytest.raises(OwnerLostError, match=f"it was tried {ATTEMPTS} times, and each time its worker"):
                await handle.wait()
        assert {(await handle.wait()).status for handle in good} == {"completed"}
        assert (await late.info()).run_id == f"{late.run_id}.2"
        with pytest.raises(OwnerLostError, match="the run was lost"):
            await late.wait()
        await check_record(store)


async def worked_off(place: str, store: Store, handles: Sequence[FleetHandle]) -> int:
    """Start one worker after the other, as Ray or systemd would, until all runs have ended; the number that died."""
    env = {**os.environ, "PYTHONPATH": str(PROGRAM.parent)}
    deaths = token = 0
    while True:
        with working(place, env=env) as process:
            while not process.has_ended():
                if not [one for one in handles if (await one.info()).status in NOT_OVER]:
                    return deaths
                token = await store.wait(token, 0.2)
        deaths += 1


SLOW = {"steps": [{"call": "bash", "input": {"command": "sleep 1; echo hi"}}, {"output": "done"}]}


async def begun(store: Store, handle: FleetHandle) -> None:
    """Its call is running."""
    token = 0
    while not [event async for event in store.read(handle.session_id) if isinstance(event, ToolCallStarted)]:
        token = await store.wait(token, 1.0)


async def in_every_phase(store: Store, fleet: Fleet) -> tuple[list[FleetHandle], FleetHandle]:
    """Runs that have ended, are in a call, or wait for a worker; and one that is pending."""
    done = await fleet.start(spec())
    await done.wait()
    held = await fleet.start(spec(policy=ASKING))
    await waiting_approval(store, held.run_id)
    going = [await fleet.start(spec(SLOW)) for _ in range(3)]
    for handle in going:
        await begun(store, handle)
    same = [await fleet.start(spec(), session_id=going[0].session_id) for _ in range(2)]  # they wait for each other
    return [done, *going, *same], held


@NEEDS_OWN_SERVER
async def test_a_killed_and_restarted_database_loses_no_run(server: OwnServer) -> None:
    """In every state: pending calls are answered afterwards, active runs end, and queued ones are claimed."""
    place = server.url()
    async with open_store(place) as store, Fleet(store) as fleet:
        with working(place), working(place):
            handles, held = await in_every_phase(store, fleet)
            await anyio.to_thread.run_sync(server.stop, signal.SIGKILL)
            await anyio.to_thread.run_sync(server.start)
            (waiting,) = await fleet.approvals()
            await fleet.approve(waiting.approval_id, by="ana")
            handles += [held, await fleet.start(spec())]
            ends = [(await handle.wait()).status for handle in handles]

        assert ends == ["completed"] * len(handles)
        await check_record(store)
    assert audited(place).findings == ()


@NEEDS_OWN_SERVER
async def test_workers_cut_off_from_the_database_repeatedly_lose_no_run(server: OwnServer) -> None:
    """At any point of their communication."""
    place = server.url()
    with CuttingProxy(server.folder) as proxy:
        cut_off = proxy.url(place)
        async with open_store(place) as store, Fleet(store) as fleet:
            with working(cut_off), working(cut_off):
                handles, held = await in_every_phase(store, fleet)
                for piece in range(1, 40, 3):
                    proxy.cut_at(piece, after=piece % 2 == 0)
                    handles.append(await fleet.start(spec()))
                    await handles[-1].wait()
                (waiting,) = await fleet.approvals()
                await fleet.approve(waiting.approval_id, by="ana")
                handles.append(held)
                ends = [(await handle.wait()).status for handle in handles]

            assert proxy.cuts > 5
            assert ends == ["completed"] * len(handles)
            await check_record(store)
    assert audited(place).findings == ()
