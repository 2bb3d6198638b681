"""A supervisor that closes while something is about to start."""

from __future__ import annotations

import anyio
import pytest

from proctor.policies.policy import Policy
from proctor.supervisor import MemoryStore, Supervisor, UsageError
from proctor.supervisor.ports.adapters import RunInfo
from proctor.supervisor.testing import FakeAdapter

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
