"""Workers that are killed or stopped: each run is continued, and no call runs twice."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest
from cluster_processes import ASKING, over, spec, waiting_approval, working
from postgres_server import needs_postgres
from stopping import stop_between_writes

from proctor.adapters.fleet import Fleet
from proctor.adapters.stores import open_store
from proctor.adapters.stores.store_names import is_url
from proctor.policies.events import TERMINAL, RunStarted, ToolCallStarted
from proctor.supervisor import ApprovalError, KillSwitch
from proctor.supervisor.control.ownership import reap
from proctor.supervisor.errors import OwnerLostError
from proctor.supervisor.store.invariants import next_of

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize(  # what dies is a process of its own: each loop and each store once
        ("anyio_backend", "place"),
        [("trio", "sqlite"), pytest.param("asyncio", "postgres", marks=needs_postgres)],
        indirect=["place"],
    ),
]


def stop(process: subprocess.Popen[bytes], place: str) -> None:
    """SIGSTOP, where others can go on."""
    if is_url(place):
        process.send_signal(signal.SIGSTOP)
    else:
        stop_between_writes(process, Path(place))


async def test_a_killed_worker_s_run_is_continued_and_its_held_call_asked_again(place: str) -> None:
    """The call runs once, after a yes to the question of the run that goes on."""
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


async def test_a_lost_run_that_somebody_ends_is_not_continued(place: str) -> None:
    """The order counts, though nobody was there to hear it."""
    async with open_store(place) as store, Fleet(store) as fleet:
        handle = await fleet.start(spec(policy=ASKING))
        with working(place) as process:
            await waiting_approval(store, handle.run_id)
            process.kill()
            process.wait()
        await handle.cancel(by="ana")

        assert (await over(store, handle.run_id)).status == "failed"
        assert await store.run(f"{handle.run_id}.2") is None


async def test_cancelling_a_lost_run_ends_the_one_that_continues_it(place: str) -> None:
    """Whoever put it down knows no other name of it."""
    async with open_store(place) as store, Fleet(store) as fleet:
        handle = await fleet.start(spec(policy=ASKING))
        with working(place) as process:
            await waiting_approval(store, handle.run_id)
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
            before = await waiting_approval(store, handle.run_id)
            stop(stopped, place)
            with working(place):
                after = await waiting_approval(store, f"{handle.run_id}.2")
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
