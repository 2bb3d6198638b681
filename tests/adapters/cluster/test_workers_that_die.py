"""Workers that are killed, stopped or cut off, and databases that are: each run is gone on with, no call twice."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from cluster_processes import ASKING, asked, over, spec, working
from cutting_proxy import CuttingProxy
from postgres_server import OwnServer, needs_own_server, needs_postgres, new_database
from stopping import stop_between_writes

from proctor.adapters.cluster import Fleet
from proctor.adapters.cluster.handle import FleetHandle
from proctor.adapters.stores import open_store
from proctor.adapters.stores.audit.auditing import audited
from proctor.adapters.stores.naming import is_url
from proctor.policies.stream.events import TERMINAL, RunStarted, ToolCallStarted
from proctor.supervisor import ApprovalError, KillSwitch, Store
from proctor.supervisor.control.reaping import reap
from proctor.supervisor.errors import OwnerLostError
from proctor.supervisor.store.take_over import next_of
from proctor.supervisor.testing.patience import PATIENCE_S

pytestmark = pytest.mark.anyio
with_own_server: pytest.MarkDecorator = needs_own_server

SLOW = {"steps": [{"call": "bash", "input": {"command": "sleep 1; echo hi"}}, {"output": "done"}]}


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=needs_postgres)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A new store's path or URL."""
    if request.param == "sqlite":
        yield str(tmp_path / "runs.db")
    else:
        with new_database() as url:
            yield url


def stop(process: subprocess.Popen[bytes], place: str) -> None:
    """SIGSTOP, where others can go on."""
    if is_url(place):
        process.send_signal(signal.SIGSTOP)
    else:
        stop_between_writes(process, Path(place))


async def test_a_killed_worker_s_run_is_gone_on_with_and_its_held_call_asked_again(place: str) -> None:
    """The call runs once, after a yes to the question of the run that goes on."""
    async with open_store(place) as store, Fleet(store) as fleet:
        handle = await fleet.start(spec(policy=ASKING))
        with working(place) as process:
            before = await asked(store, handle.run_id)
            process.kill()
            process.wait()
        with working(place):
            after = await asked(store, f"{handle.run_id}.2")
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


async def test_a_run_is_gone_on_with_as_often_as_its_spec_says(place: str) -> None:
    """Then it stays failed, with the reason."""
    async with open_store(place) as store, Fleet(store) as fleet:
        handle = await fleet.start(spec(policy=ASKING, take_overs=1))
        for run_id in (handle.run_id, f"{handle.run_id}.2"):
            with working(place) as process:
                await asked(store, run_id)
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


async def test_a_lost_run_that_somebody_ends_is_not_gone_on_with(place: str) -> None:
    """The order counts, though nobody was there to hear it."""
    async with open_store(place) as store, Fleet(store) as fleet:
        handle = await fleet.start(spec(policy=ASKING))
        with working(place) as process:
            await asked(store, handle.run_id)
            process.kill()
            process.wait()
        await handle.cancel(by="ana")

        assert (await over(store, handle.run_id)).status == "failed"
        assert await store.run(f"{handle.run_id}.2") is None


async def test_who_cancels_a_run_that_was_lost_ends_the_one_that_goes_on_with_it(place: str) -> None:
    """Whoever put it down knows no other name of it."""
    async with open_store(place) as store, Fleet(store) as fleet:
        handle = await fleet.start(spec(policy=ASKING))
        with working(place) as process:
            await asked(store, handle.run_id)
            process.kill()
            process.wait()
        await reap(store)
        outcomes = await KillSwitch(store).kill(by="ana", run_id=handle.run_id)

        assert [(one.run_id, one.status) for one in outcomes] == [(f"{handle.run_id}.2", "cancelled")]
        assert (await handle.wait()).status == "cancelled"


async def test_a_worker_that_stood_still_longer_than_its_lease_permits_nothing_when_it_comes_back(
    place: str,
) -> None:
    """Its run goes on elsewhere by then. It works on with others, as before."""
    async with open_store(place) as store, Fleet(store) as fleet:
        handle = await fleet.start(spec(policy=ASKING))
        with working(place, lease_s=8) as stopped:
            before = await asked(store, handle.run_id)
            stop(stopped, place)
            with working(place):
                after = await asked(store, f"{handle.run_id}.2")
                await fleet.approve(after.request.approval_id, by="ana")
                assert (await handle.wait()).status == "completed"
            stopped.send_signal(signal.SIGCONT)
            with pytest.raises(ApprovalError):
                await fleet.approve(before.request.approval_id, by="ana")
            assert (await (await fleet.start(spec())).wait()).status == "completed"  # nobody else is there

        events = [event async for event in store.read(handle.session_id)]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.run_id for event in events if isinstance(event, ToolCallStarted)] == [f"{handle.run_id}.2"]
    ends = [event.run_id for event in events if isinstance(event, TERMINAL)]
    assert ends == [handle.run_id, f"{handle.run_id}.2"]


async def begun(store: Store, handle: FleetHandle) -> None:
    """Its call runs."""
    token = 0
    with anyio.fail_after(PATIENCE_S):
        while not [event async for event in store.read(handle.session_id) if isinstance(event, ToolCallStarted)]:
            token = await store.wait(token, 1.0)


async def in_every_phase(store: Store, fleet: Fleet) -> tuple[list[FleetHandle], FleetHandle]:
    """Runs that are over, in a call, wait for a worker; and one that is held."""
    done = await fleet.start(spec())
    await done.wait()
    held = await fleet.start(spec(policy=ASKING))
    await asked(store, held.run_id)
    going = [await fleet.start(spec(SLOW)) for _ in range(3)]
    for handle in going:
        await begun(store, handle)
    same = [await fleet.start(spec(), session_id=going[0].session_id) for _ in range(2)]  # they wait for each other
    return [done, *going, *same], held


async def check(place: str, handles: list[FleetHandle]) -> None:
    """Gapless sessions, one end of each run, no call twice; and the record is what was written."""
    async with open_store(place) as store:
        for session_id in {handle.session_id for handle in handles}:
            events: list[Any] = [event async for event in store.read(session_id)]
            calls = [(event.run_id, event.tool_call_id) for event in events if isinstance(event, ToolCallStarted)]
            ends = [event.run_id for event in events if isinstance(event, TERMINAL)]
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
            assert len(calls) == len(set(calls))
            assert sorted(ends) == sorted({event.run_id for event in events if event.run_id})
    assert audited(place).findings == ()


@with_own_server
async def test_a_database_that_is_killed_and_comes_back_costs_no_run() -> None:
    """In every phase: what is held is answered afterwards, what ran ends, what waits is taken."""
    server = OwnServer()
    try:
        await anyio.to_thread.run_sync(server.start)
        place = server.url()
        async with open_store(place) as store, Fleet(store) as fleet:
            with working(place), working(place):
                handles, held = await in_every_phase(store, fleet)
                await anyio.to_thread.run_sync(server.stop, signal.SIGKILL)
                await anyio.to_thread.run_sync(server.start)
                (waiting,) = await fleet.approvals()
                await fleet.approve(waiting.approval_id, by="ana")
                handles += [held, await fleet.start(spec())]
                with anyio.fail_after(PATIENCE_S):
                    ends = [(await handle.wait()).status for handle in handles]

        assert ends == ["completed"] * len(handles)
        await check(place, handles)
    finally:
        await anyio.to_thread.run_sync(server.close)


@with_own_server
async def test_workers_that_are_cut_off_from_the_database_again_and_again_lose_no_run() -> None:
    """At any moment of what they say to it."""
    server = OwnServer()
    proxy = CuttingProxy(server.folder)
    try:
        await anyio.to_thread.run_sync(server.start)
        place = server.url()
        cut_off = proxy.url(place)
        async with open_store(place) as store, Fleet(store) as fleet:
            with working(cut_off), working(cut_off):
                handles, held = await in_every_phase(store, fleet)
                for piece in range(1, 40, 3):
                    proxy.cut_at(piece, after=piece % 2 == 0)
                    handles.append(await fleet.start(spec()))
                    with anyio.fail_after(PATIENCE_S):
                        await handles[-1].wait()
                (waiting,) = await fleet.approvals()
                await fleet.approve(waiting.approval_id, by="ana")
                handles.append(held)
                with anyio.fail_after(PATIENCE_S):
                    ends = [(await handle.wait()).status for handle in handles]

        assert proxy.cuts > 5
        assert ends == ["completed"] * len(handles)
        await check(place, handles)
    finally:
        proxy.close()
        await anyio.to_thread.run_sync(server.close)
