"""The writer of a run's record, by itself."""

from __future__ import annotations

import anyio
import pytest

from proctor.policies.events import Event
from proctor.policies.events.run_context import RunContext
from proctor.policies.monitor.compiled_policy import compile_policy
from proctor.policies.policy import Policy
from proctor.policies.stack.merge import merge_policies
from proctor.supervisor import MemoryStore
from proctor.supervisor.machine import interface
from proctor.supervisor.machine.machine import RunMachine
from proctor.supervisor.machine.run_state import RunIdentity
from proctor.supervisor.run.journal import Journal
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = pytest.mark.anyio


async def test_a_retry_waits_for_a_flush_that_is_due(permissive: Policy) -> None:
    """The task that flushes may come to its turn later."""
    judge = compile_policy(merge_policies([permissive])).monitor(RunContext())
    machine = RunMachine(RunIdentity(run_id="r", session_id="s", provider="x"), judge)
    machine.handle(interface.Begin(now_ms=1, prompt="go"))
    stored: list[Event] = []
    failures: list[Exception] = []
    writer = Journal(
        MemoryStore(),
        machine,
        stored=lambda count: None,
        failed=failures.append,
        publish=lambda events, _: stored.extend(events),
    )
    found: list[tuple[bool, int]] = []

    async def attempt() -> None:
        found.append((await writer.retry() is None, len(stored)))

    writer.idle = False
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(attempt)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(writer.flush)

    assert found == [(True, 3)]
    assert failures == []
