"""A fleet on a real Ray cluster and a real PostgreSQL: a worker, a node, the server and Ray's head are killed."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Iterator

import anyio
import pytest
from cluster_processes import ASKING, approved, check_record, spec, waiting_approval
from postgres_server import OwnServer, needs_own_server
from ray_house import RayHouse, Workers, needs_ray

from proctor.adapters.fleet import Fleet, FleetHandle
from proctor.adapters.stores import open_store
from proctor.adapters.stores.audit.audit import audited
from proctor.supervisor import Store
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = [needs_ray, needs_own_server, pytest.mark.anyio]
BUSY = {"steps": [*({"call": "bash", "input": {"command": f"sleep 0.{n}"}} for n in range(1, 4)), {"output": "done"}]}


@pytest.fixture
def anyio_backend() -> str:
    """Of the tests: that of the workers is asyncio."""
    return "asyncio"


@pytest.fixture
def house() -> Iterator[RayHouse]:
    """A cluster that a test may lose."""
    house = RayHouse()
    yield house
    house.close()


@pytest.fixture
async def server() -> AsyncIterator[OwnServer]:
    """PostgreSQL, to be killed."""
    server = OwnServer()
    await anyio.to_thread.run_sync(server.start)
    yield server
    await anyio.to_thread.run_sync(server.close)


async def in_every_phase(store: Store, fleet: Fleet) -> list[FleetHandle]:
    """Runs that are over, held, in a call, and waiting for the one before them."""
    done = await fleet.start(spec())
    await done.wait()
    held = [await fleet.start(spec(policy=ASKING)) for _ in range(3)]
    for handle in held:
        await waiting_approval(store, handle.run_id)
    busy = [await fleet.start(spec(BUSY)) for _ in range(4)]
    waiting = await fleet.start(spec(), session_id=held[0].session_id)
    return [done, *held, *busy, waiting]


async def finished(store: Store, fleet: Fleet, handles: list[FleetHandle]) -> None:
    """Approve whatever is asked until all is over: each run completed, once."""
    with anyio.fail_after(PATIENCE_S):
        for handle in handles:
            await approved(store, fleet, handle)
        assert {(await handle.wait()).status for handle in handles} == {"completed"}
    await check_record(store)


async def test_killed_workers_nodes_and_servers_and_a_lost_head_cost_no_run(
    house: RayHouse, server: OwnServer
) -> None:
    """One after the other, each with runs in every phase; where the head is lost, Ray is started again, and `up`."""
    place = server.url()
    workers = Workers(house, place, "postgres")
    await workers.ask("up", workers=2)
    await workers.working()
    async with open_store(place) as store, Fleet(store) as fleet:
        handles = await in_every_phase(store, fleet)
        owner = (await handles[1].info()).owner
        assert owner is not None
        os.kill(owner.pid, signal.SIGKILL)
        await finished(store, fleet, handles)
        await workers.working()

        handles = await in_every_phase(store, fleet)
        await anyio.to_thread.run_sync(server.stop, signal.SIGKILL)
        await anyio.to_thread.run_sync(server.start)
        await finished(store, fleet, handles)
        await workers.working()

        handles = await in_every_phase(store, fleet)
        await anyio.to_thread.run_sync(lambda: house.ask("lose_head"))
        again = await anyio.to_thread.run_sync(RayHouse)
        try:
            workers = Workers(again, place, "postgres")
            assert await workers.ask("status") == []  # what the other node's Ray has left works on, or not
            await workers.ask("up", workers=2)
            await finished(store, fleet, handles)
            await workers.working()

            handles = await in_every_phase(store, fleet)
            await anyio.to_thread.run_sync(lambda: again.ask("lose_node"))
            await finished(store, fleet, handles)
            await workers.working()
        finally:
            await anyio.to_thread.run_sync(again.close)

    assert audited(place).findings == ()
