"""Supervisors in processes of their own on a server that goes away: cut off, stopped, killed, and the server too."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from contextlib import ExitStack

import anyio
import pytest
from cutting_proxy import CuttingProxy
from owning_processes import SESSIONS, check_record, process, recorded
from postgres_server import OwnServer, needs_own_server

from proctor.adapters.stores import open_store
from proctor.adapters.stores.audit.audit import audited
from proctor.policies.events import Event, RunFailed
from proctor.supervisor import create_run
from proctor.supervisor.control.ownership import reap

pytestmark = needs_own_server
TROUBLES = int(os.environ.get("PROCTOR_KILLS", "3"))


@pytest.fixture
def server() -> Iterator[OwnServer]:
    server = OwnServer()
    server.start()
    yield server
    server.close()


def test_a_supervisor_that_was_cut_off_comes_back_and_can_neither_write_nor_permit(server: OwnServer) -> None:
    """Another has ended its run when its lease was over: what its agent asks for then does not run."""

    async def ended_by_another() -> list[Event]:
        async with open_store(server.url()) as store:
            token = 0
            while (run := await store.run("held")) is None or run.status != "lost":
                token = await store.wait(token, 0.1)
            assert [run.run_id for run in await reap(store)] == ["held"]
            events: list[Event] = await recorded(store, "s")
            return events

    async def in_the_end() -> list[Event]:
        async with open_store(server.url()) as store:
            events: list[Event] = await recorded(store, "s")
            return events

    proxy = CuttingProxy(server.folder)
    try:
        with process(proxy.url(server.url()), "hold", "1") as owner:
            owner.until("ran held c0")
            proxy.refuses = True
            proxy.cut()
            before = anyio.run(ended_by_another)
            proxy.refuses = False
            owner.go_on()
            lines = owner.rest()
    finally:
        proxy.close()
    after = anyio.run(in_the_end)

    assert [line for line in lines if line.startswith("ran")] == ["ran held c0"]
    assert lines[-1].startswith("refused fenced")
    assert after == before
    assert isinstance(after[-1], RunFailed)


@pytest.mark.parametrize("troubles", [TROUBLES])
def test_whatever_is_cut_stopped_or_killed_the_record_holds(server: OwnServer, troubles: int) -> None:
    """A worker, its connections, the server: nothing acknowledged lost, no gap, one end a run, no call unrecorded."""
    created = 0

    async def more_runs() -> None:
        nonlocal created
        async with open_store(server.url()) as store:
            for _ in range(6):
                session_id = f"s{random.randrange(SESSIONS)}"
                await create_run(store, "go", run_id=f"r{created}", session_id=session_id)
                created += 1

    anyio.run(more_runs)
    with ExitStack() as stack:
        proxies = [CuttingProxy(server.folder) for _ in range(2)]
        for proxy in proxies:
            stack.callback(proxy.close)
        workers = [stack.enter_context(process(proxy.url(server.url()), "work")) for proxy in proxies]
        pids = []
        for worker in workers:
            worker.go_on("start")
            pids.append(int(worker.until("pid").split()[1]))
        for n in range(troubles):
            anyio.run(more_runs)
            anyio.run(anyio.sleep, random.uniform(0, 0.15))  # real processes, in trouble at any moment
            victim = n % 2
            match n % 3:
                case 0:
                    server.stop(random.choice((signal.SIGKILL, signal.SIGQUIT)))
                    server.start()
                case 1:
                    proxies[victim].cut_at(random.randrange(1, 30), after=random.random() < 0.5)
                case 2:
                    os.kill(pids[victim], signal.SIGKILL)
                    workers[victim].until("dead")
                    workers[victim].go_on("start")
                    pids[victim] = int(workers[victim].until("pid").split()[1])
        for worker, pid in zip(workers, pids, strict=True):
            worker.end_input()
            os.kill(pid, signal.SIGKILL)
        lines = [line for worker in workers for line in worker.rest()]

    anyio.run(check_record, server.url(), lines)
    assert audited(server.url()).findings == ()
