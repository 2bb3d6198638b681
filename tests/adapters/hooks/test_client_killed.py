"""The real Claude Code, killed with SIGKILL while its command runs: its run does not go on without it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest
from hook_processes import daemons, end_daemons

from proctor.adapters.stores import SQLiteStore
from proctor.policies.events import Event
from proctor.supervisor import RunInfo
from proctor.supervisor.control.ownership import reap
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = pytest.mark.claude


@pytest.fixture
def working(governed: Any) -> Iterator[Any]:
    """The client, whose first command reads from a pipe until the test is over."""
    pipe = governed.cwd / "pipe"
    os.mkfifo(pipe)
    held = os.open(pipe, os.O_RDWR)
    governed.govern("{name: p, limits: {max_tool_calls: {max: 2, scope: session, action: deny}}}")
    governed.api.say(governed.api.reply(governed.api.bash(f"cat {pipe}")))
    yield governed
    os.close(held)


def started(working: Any) -> Any:
    """The client, once the store has its first call."""
    client = working.start()
    run = until(working.store, lambda run: run.calls == 1)
    assert run.owner is not None
    assert (run.owner.pid, run.status) == (client.pid, "running")
    return client


def until(path: Any, there: Callable[[RunInfo], bool]) -> RunInfo:
    """The latest run, once it is as expected."""

    async def read() -> RunInfo:
        with anyio.fail_after(PATIENCE_S):
            async with SQLiteStore(path) as store:
                token = 0
                while not (found := await store.runs(limit=1)) or not there(found[0]):
                    token = await store.wait(token, 0.1)
                return found[0]

    return anyio.run(read)


def events(path: Any, session_id: str) -> list[Event]:
    async def read() -> list[Event]:
        async with SQLiteStore(path) as store:
            return [event async for event in store.read(session_id)]

    return anyio.run(read)


def killed(client: Any) -> None:
    with client:
        client.kill()


def test_its_run_is_ended_by_the_process_that_judges(working: Any) -> None:
    """Another client continues the session, as a run of its own, with the counts so far."""
    client, api = started(working), working.api
    killed(client)
    run = until(working.store, lambda run: run.status == "failed")
    never = working.cwd / "never"
    api.say(api.reply(api.bash("echo second")), api.reply(api.bash(f"touch {never}")), api.reply(api.text("done")))
    working.run("--resume", run.session_id)
    ends = [(event.run_id, event.type) for event in events(working.store, run.session_id) if "run_" in event.type]

    assert not never.exists()
    assert ends == [
        (f"{run.session_id}-1", "run_started"),
        (f"{run.session_id}-1", "run_failed"),
        (f"{run.session_id}-2", "run_started"),
        (f"{run.session_id}-2", "run_completed"),
    ]


def test_without_the_process_that_judges_its_run_is_lost_and_reaped(working: Any) -> None:
    """Whoever looks at the store sees it, and ends it."""
    client = started(working)
    end_daemons(working.store)
    while_there = until(working.store, lambda run: not daemons(working.store)).status
    killed(client)
    run = until(working.store, lambda run: run.status == "lost")

    async def reaped() -> list[RunInfo]:
        async with SQLiteStore(working.store) as store:
            return await reap(store)

    assert while_there == "running"
    assert [each.run_id for each in anyio.run(reaped)] == [run.run_id]
    assert events(working.store, run.session_id)[-1].type == "run_failed"
