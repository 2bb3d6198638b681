"""A supervisor that closes while something is about to start."""

from __future__ import annotations

import anyio
import pytest

from proctor.policies.policy import Policy
from proctor.supervisor import MemoryStore, Supervisor, UsageError
from proctor.supervisor.ports.stored_types import RunInfo
from proctor.supervisor.testing import FakeAdapter, Pause

pytestmark = pytest.mark.anyio


async def test_a_run_whose_supervisor_closes_while_it_is_registered_does_not_start(permissive: Policy) -> None:
    """Whoever starts it hears so."""
    was_requested, go_on = anyio.Event(), anyio.Event()

    class Slow(MemoryStore):
        async def create_run(self, run: RunInfo, *, epoch: int = 0) -> RunInfo:
            was_requested.set()
            await go_on.wait()
            return await super().create_run(run, epoch=epoch)

    adapter, supervisor = FakeAdapter(), Supervisor(Slow())

    async def start() -> None:
        with pytest.raises(UsageError, match="not open"):
            await supervisor.start(adapter, "go", policies=[permissive])

    async with anyio.create_task_group() as tasks:
        async with supervisor:
            tasks.start_soon(start)
            await was_requested.wait()
        go_on.set()

    assert adapter.launches == []
    assert supervisor.statistics().running == 0


async def test_a_start_whose_task_cannot_begin_is_undone(permissive: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its session is free, its run is over, and the supervisor can be left."""

    def broken(_: object) -> None:
        raise MemoryError("no room for a task")

    store = MemoryStore()
    async with Supervisor(store) as supervisor:
        with monkeypatch.context() as patched:
            patched.setattr("proctor.supervisor.api.supervisor.spawn", broken)
            with pytest.raises(MemoryError):
                await supervisor.start(FakeAdapter(), "go", policies=[permissive], run_id="r", session_id="s")
        given_up = await store.run("r")
        handle = await supervisor.start(FakeAdapter(), "go", policies=[permissive], session_id="s")
        result = await handle.wait()

    assert given_up is not None
    assert given_up.status == "cancelled"
    assert result.status == "completed"
    assert supervisor.statistics().started == 1


async def test_a_cancel_of_all_runs_reaches_one_that_is_starting(permissive: Policy) -> None:
    """It ends as soon as it has started."""
    was_requested, go_on = anyio.Event(), anyio.Event()

    class Slow(MemoryStore):
        async def create_run(self, run: RunInfo, *, epoch: int = 0) -> RunInfo:
            was_requested.set()
            await go_on.wait()
            return await super().create_run(run, epoch=epoch)

    async def start() -> None:
        handle = await supervisor.start(FakeAdapter([Pause()]), "go", policies=[permissive])
        assert (await handle.wait()).reason == "enough"

    async with Supervisor(Slow()) as supervisor, anyio.create_task_group() as tasks:
        tasks.start_soon(start)
        await was_requested.wait()
        await supervisor.cancel_all("enough")
        go_on.set()

    assert supervisor.statistics().cancelled == 1
