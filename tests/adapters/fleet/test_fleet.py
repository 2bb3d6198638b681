"""Runs of a fleet on a real Ray cluster whose workers and nodes are killed; and the differences between a fleet and a
supervisor.
"""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from cluster_processes import ASKING, PROGRAM, approved, check_record, spec, waiting_approval, working
from postgres_server import OwnServer, needs_own_server
from ray_house import ENVIRONMENT, SOON, RayHouse, Workers, needs_ray

from proctor.adapters.fleet import Fleet, FleetHandle, RunSpec, WorkerStatus
from proctor.adapters.stores import SQLiteStore, open_store
from proctor.adapters.stores.audit.audit import audited
from proctor.policies import RunContext, parse_policies
from proctor.supervisor import MemoryStore, RunHandle, Store, Supervisor, UsageError, all_runs
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = pytest.mark.anyio

NEEDS_RAY: pytest.MarkDecorator = needs_ray

BUSY = {"steps": [*({"call": "bash", "input": {"command": f"sleep 0.{n}"}} for n in range(1, 4)), {"output": "done"}]}


@pytest.fixture
def anyio_backend() -> str:
    """For the tests; the workers use asyncio."""
    return "asyncio"


@pytest.fixture(scope="module")
def house() -> Iterator[RayHouse]:
    """Started once for all tests, as that takes seconds."""
    house = RayHouse()
    yield house
    house.close()


@pytest.fixture
async def workers(house: RayHouse, store: SQLiteStore, tmp_path: Path) -> AsyncIterator[Workers]:
    """Two workers on the store."""
    workers = Workers(house, str(tmp_path / "runs.db"), tmp_path.name)
    await workers.ask("up", workers=2)
    await workers.working()
    yield workers
    async with Fleet(store) as fleet:
        await fleet.switch.kill(by="test", everything=True)
    assert {one.state for one in await workers.ask("drain")} <= {"drained"}
    assert await workers.ask("status") == []


@NEEDS_RAY
async def test_workers_are_on_both_nodes_and_have_runs(workers: Workers, store: SQLiteStore) -> None:
    """Ray places them. They claim runs from the store, and approvals are answered through it. A drained node claims
    no more: its worker exits when its runs have ended, and queued runs go to the other node.
    """
    async with Fleet(store) as fleet:
        handles = [await fleet.start(spec()) for _ in range(10)]
        assert {(await handle.wait()).output for handle in handles} == {"done"}
        asking = await fleet.start(spec(policy=ASKING))
        await fleet.approve((await waiting_approval(store, asking.run_id)).request.approval_id, by="ana")
        assert [call.name for call in (await asking.wait()).calls] == ["bash"]

        found = await workers.until(lambda found: sum(one.finished for one in found) == 11)
        assert len({one.node for one in found}) == 2
        assert [one.name for one in found] == [f"{workers.name}-1", f"{workers.name}-2"]

        first, second = await workers.working()
        left = await workers.ask("drain", node=first.node)
        assert [(one.name, one.state) for one in left] == [(first.name, "drained")]
        assert [one.node for one in await workers.working(1)] == [second.node]
        assert (await (await fleet.start(spec())).wait()).status == "completed"
        assert len(await workers.ask("up", workers=2)) == 2


@NEEDS_RAY
async def test_a_draining_worker_that_dies_is_restarted_without_claiming_more(
    workers: Workers, store: SQLiteStore
) -> None:
    """A worker with runs stays. Its lost run waits for another worker. Drained again, it exits, and a new
    one works.
    """
    async with Fleet(store) as fleet:
        handle = await fleet.start(spec(policy=ASKING))
        await waiting_approval(store, handle.run_id)
        assert {one.state for one in await workers.ask("drain", timeout_s=1)} != {"drained"}
        found = await workers.until(lambda found: [one.state for one in found if one.running] == ["draining"])
        [busy] = [one for one in found if one.running]

        os.kill(busy.pid, signal.SIGKILL)

        back = await workers.until(lambda found: [one.state for one in found if one.name == busy.name] == ["drained"])
        assert busy.pid not in [one.pid for one in back]
        assert {one.state for one in await workers.ask("drain")} <= {"drained"}
        await workers.ask("up", workers=2)
        await workers.working()
        await approved(store, fleet, handle)
        assert (await handle.wait()).run_id == f"{handle.run_id}.2"


@NEEDS_RAY
async def test_the_command_line_places_lists_and_drains_workers(
    house: RayHouse, store: SQLiteStore, tmp_path: Path
) -> None:
    """Each command reports the result, for people and for programs. A wait without success has another exit code."""
    path, at = str(tmp_path / "runs.db"), ("--name", "line", "--address", house.address)

    size = ("--workers", "2", "--max-running", "7", "--wait", str(PATIENCE_S))
    up = await proctor("up", *size, "--store", path, "--json", *at)
    while "away" in (status := await proctor("status", *at)).stdout:  # a busy worker answers late
        pass
    async with Fleet(store) as fleet:
        handle = await fleet.start(spec(policy=ASKING))
        waits = await waiting_approval(store, handle.run_id)
        early = await proctor("drain", "--wait", "1", "--json", *at)
        await fleet.approve(waits.request.approval_id, by="ana")
        assert (await handle.wait()).status == "completed"
    late = await proctor("drain", *at)
    none = await proctor("status", *at)

    workers = [msgspec.json.decode(line, type=WorkerStatus) for line in up.stdout.splitlines()]
    assert [(one.name, one.state, one.max_running) for one in workers] == [
        ("line-1", "working", 7),
        ("line-2", "working", 7),
    ]
    assert status.stdout.startswith("line-1: working on ")
    assert status.stdout.endswith(": 0 of 7 runs, 0 over\n")
    assert (up.returncode, status.returncode, early.returncode, late.returncode, none.returncode) == (0, 0, 3, 0, 0)
    assert "drained" in late.stdout
    assert "no workers of the fleet `line`" in none.stderr


async def proctor(*words: str) -> subprocess.CompletedProcess[str]:
    """`proctor fleet` with these arguments and the token."""
    command = [sys.executable, "-m", "proctor", "fleet", *words]
    ended = await anyio.run_process(command, check=False, env={**os.environ, **ENVIRONMENT})
    return subprocess.CompletedProcess(command, ended.returncode, ended.stdout.decode(), ended.stderr.decode())


@NEEDS_RAY
def test_without_the_token_the_cluster_is_closed(house: RayHouse) -> None:
    """Even from the same machine."""
    without = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    program = [sys.executable, "-c", f"import ray; ray.init(address={house.address!r})"]
    other = {**ENVIRONMENT, "RAY_AUTH_TOKEN": "another-token-of-that-length"}
    tries = [
        subprocess.Popen(program, stderr=subprocess.PIPE, text=True, env={**without, **env, SOON: "1"})
        for env in ({"RAY_AUTH_MODE": "disabled"}, other)
    ]
    for process in tries:
        _, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode != 0
        assert "token authentication is enabled" in errors.lower()


@NEEDS_RAY
async def test_a_missing_cluster_is_reported() -> None:
    """At once, as Ray itself would try for minutes. Workers need the name of a store, not a store object."""
    async with Fleet(MemoryStore(), address="127.0.0.2:1") as fleet:
        with pytest.raises(UsageError, match=r"no Ray cluster at `127\.0\.0\.2:1`"):
            await fleet.status()
        with pytest.raises(UsageError, match="its URL or path"):
            await fleet.up(1)


async def in_every_phase(store: Store, fleet: Fleet) -> list[FleetHandle]:
    """Runs that have ended, are pending, are in a call, and wait for the one before them."""
    done = await fleet.start(spec())
    await done.wait()
    held = [await fleet.start(spec(policy=ASKING)) for _ in range(3)]
    for handle in held:
        await waiting_approval(store, handle.run_id)
    busy = [await fleet.start(spec(BUSY)) for _ in range(4)]
    waiting = await fleet.start(spec(), session_id=held[0].session_id)
    return [done, *held, *busy, waiting]


async def finished(store: Store, fleet: Fleet, handles: list[FleetHandle]) -> None:
    """Approve every request until all runs have ended: each completed, once."""
    for handle in handles:
        await approved(store, fleet, handle)
    assert {(await handle.wait()).status for handle in handles} == {"completed"}
    await check_record(store)


@NEEDS_RAY
@needs_own_server  # type: ignore[untyped-decorator]
async def test_killed_workers_nodes_and_servers_and_a_lost_head_lose_no_run(house: RayHouse) -> None:
    """On PostgreSQL, one after the other, with runs in every state: all are accounted for, and no call is allowed
    twice. If the head is lost, Ray is started again, then `up`. Other tests can't use this cluster afterwards.
    """
    with ExitStack() as stack:
        server = stack.enter_context(OwnServer())
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
            assert (await handles[1].info()).run_id == f"{handles[1].run_id}.2"
            assert owner.pid not in [one.pid for one in await workers.working()]

            handles = await in_every_phase(store, fleet)
            await anyio.to_thread.run_sync(server.stop, signal.SIGKILL)
            await anyio.to_thread.run_sync(server.start)
            await finished(store, fleet, handles)
            await workers.working()

            handles = await in_every_phase(store, fleet)
            await anyio.to_thread.run_sync(lambda: house.ask("lose_head"))
            again = await anyio.to_thread.run_sync(RayHouse)
            stack.callback(again.close)
            workers = Workers(again, place, "postgres")
            assert await workers.ask("status") == []  # the other node's workers continue, or not
            await workers.ask("up", workers=2)
            await finished(store, fleet, handles)
            before = await workers.working()

            handles = await in_every_phase(store, fleet)
            lost = await anyio.to_thread.run_sync(lambda: again.ask("lose_node"))
            assert lost in [one.node for one in before]
            await finished(store, fleet, handles)
            await workers.until(lambda found: lost not in [one.node for one in found])
            await workers.working()
        assert audited(place).findings == ()


LEFT_OUT: dict[Any, dict[str, str]] = {
    Supervisor: {
        "cancel_all": "a store's runs are not one caller's: `switch.kill` says by whom and of what, `everything` too",
        "claim": "a worker claims what it starts",
        "execute": "a worker executes what was put down",
        "statistics": "they are of one process; the runs of a store are counted by `store.size()`",
    },
    RunHandle: {
        "add_net": "its callables are of one process, and the run goes on in another",
        "cancel_for_approval": "it is about a call that the process of the run holds",
        "done": "the store is asked, so it is awaited: `info`",
        "released": "the agent is a worker's: nobody's event loop waits for it here",
        "remove_net": "as `add_net`",
        "resolve": "as `status`",
        "status": "the state of nets is in the process of the run",
    },
}
"""Methods that only a supervisor and its handle have, with the reason."""
ADDED: dict[Any, dict[str, str]] = {
    Fleet: {"drain": "of workers on a cluster", "handle": "runs outlive whoever put them down",
        "status": "of workers on a cluster", "up": "of workers on a cluster"},
    FleetHandle: {"info": "the store is asked, so it is awaited"},
}  # fmt: skip
"""Methods that only a fleet and its handle have, with the reason."""
OTHERWISE = {
    "approvals": "the store is asked, so it is awaited",
    "cancel": "an order to another process has somebody who gave it, and is awaited for so long",
    "start": "a run is put down as data, a `RunSpec`",
}
"""Methods that differ, with the reason."""


def public(kind: type) -> set[str]:
    """The public methods of a class."""
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize(("here", "there"), [(Supervisor, Fleet), (RunHandle, FleetHandle)])
def test_every_difference_between_a_fleet_and_a_supervisor_has_a_reason(here: type, there: type) -> None:
    """A new method of one belongs in the other too, with the same parameters and defaults, async or not; otherwise it
    is listed with the reason.
    """
    assert public(here) - public(there) == LEFT_OUT[here].keys()
    assert public(there) - public(here) == ADDED[there].keys()
    for name in (public(here) & public(there)) - OTHERWISE.keys() - {"run_id", "session_id"}:
        one, other = getattr(here, name), getattr(there, name)
        assert inspect.signature(one).parameters == inspect.signature(other).parameters, name
        assert inspect.iscoroutinefunction(one) == inspect.iscoroutinefunction(other), name


BUDGET = parse_policies("{name: org, budgets: [{name: team, max_tool_calls: 5, per: $.labels.team, action: deny}]}")


async def test_three_levels_of_runs_on_two_workers_share_the_first_ones_budget(place: str) -> None:
    """Each level has no budget, no context and no store of its own except by URL. Five calls are allowed in all."""
    env = {**os.environ, "PYTHONPATH": str(PROGRAM.parent)}
    context = RunContext(tenant="acme", labels={"team": "web"})
    spec = RunSpec.of(
        "function", f"3 {place}", policies=BUDGET, options={"loop": "loops:delegating"}, context=context
    )
    async with open_store(place) as store, Fleet(store) as fleet:
        with working(place, env=env), working(place, env=env):
            result = await (await fleet.start(spec, run_id="level-4")).wait()
        runs = {run.run_id: run async for run in all_runs(store)}
        [budget] = await store.budgets()

    assert result.status == "completed"
    assert {run.status for run in runs.values()} == {"completed"}
    assert {run_id: run.calls for run_id, run in runs.items()} == {"level-4": 2, "level-3": 2, "level-2": 1}
    assert [runs[f"level-{n}"].spec["parent"]["run_id"] for n in (3, 2)] == ["level-4", "level-3"]
    assert {run.tenant for run in runs.values()} == {"acme"}
    assert (budget.budget, budget.key, budget.used) == ("org/team", '$.labels.team="web"', 5)
