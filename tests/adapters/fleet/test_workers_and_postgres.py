"""Workers on PostgreSQL, which is killed under them or cut off from them: no run is lost, and no call runs twice."""

from __future__ import annotations

import signal
from typing import Any

import anyio
import pytest
from cluster_processes import ASKING, spec, waiting_approval, working
from cutting_proxy import CuttingProxy
from postgres_server import OwnServer, needs_own_server

from proctor.adapters.fleet import Fleet
from proctor.adapters.fleet.fleet import FleetHandle
from proctor.adapters.stores import open_store
from proctor.adapters.stores.audit.audit import audited
from proctor.policies.events import TERMINAL, ToolCallStarted
from proctor.supervisor import Store
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"]), needs_own_server]
SLOW = {"steps": [{"call": "bash", "input": {"command": "sleep 1; echo hi"}}, {"output": "done"}]}


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
    await waiting_approval(store, held.run_id)
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
