"""Beside agents that report without ever waiting, a run that is to end goes first."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from proctor.policies.events import Event, MessageReceived, RunCompleted
from proctor.policies.limits import Limits
from proctor.policies.policy import Policy
from proctor.supervisor import MemoryStore, PolicyViolationError, Supervisor
from proctor.supervisor.ports.adapter import CancelStep, Launch, Provider
from proctor.supervisor.run.provider_session import TURN
from proctor.supervisor.testing import FakeAdapter, Pause

pytestmark = pytest.mark.trio
MOST = 50 * TURN


class Flood(FakeAdapter):
    """Reports events without a pause until `enough(how many)`."""

    def __init__(self, enough: Callable[[int], bool]) -> None:
        super().__init__(name="flood")
        self._enough = enough
        self.reported = 0

    @asynccontextmanager
    async def _opened(self, launch: Launch) -> AsyncIterator[Provider]:
        yield self

    async def events(self) -> AsyncIterator[Event]:
        while not self._enough(self.reported) and self.reported < MOST:
            self.reported += 1
            yield MessageReceived(content="x")
        yield RunCompleted(output="done")

    def cancel_steps(self) -> Sequence[CancelStep]:
        return ()


@pytest.mark.parametrize("floods", [1, 10])
async def test_a_deadline_is_kept_beside_agents_that_never_wait(
    floods: int, autojump_clock: trio.testing.MockClock, permissive: Policy
) -> None:
    """It is judged with the next event of whoever has the processor; nobody reports a second one before the silent
    agent has been told.
    """
    silent = FakeAdapter([Pause()])
    since: dict[Any, int] = {}

    def enough(reported: int) -> bool:
        if not silent.launches:
            return False
        if not since:
            autojump_clock.jump(10)
            since.update((flood, flood.reported) for flood in flooding)
        return bool(silent.steps_taken)

    flooding = [Flood(enough) for _ in range(floods)]
    async with Supervisor(MemoryStore()) as supervisor:
        limited = Policy(name="limited", limits=Limits(max_idle_ms=5_000))
        handle = await supervisor.start(silent, "go", policies=[limited])
        await trio.testing.wait_all_tasks_blocked()
        for flood in flooding:
            await supervisor.start(flood, "go", policies=[permissive])
        with pytest.raises(PolicyViolationError):
            await handle.wait()

    assert silent.steps_taken == ["interrupt"]
    assert [flood.reported - since[flood] <= 1 for flood in flooding] == [True] * floods


async def test_an_agent_that_never_waits_is_held_up_for_a_bounded_time(
    autojump_clock: trio.testing.MockClock, permissive: Policy
) -> None:
    """By a run whose end takes long to be recorded: it is read on after 50 ms."""
    answers = trio.Event()

    class Slow(MemoryStore):
        async def append(self, events: Sequence[Event], **owned: Any) -> list[Event]:
            if any(event.run_id == "slow" and event.type == "policy_violation" for event in events):
                await answers.wait()
            return await super().append(events, **owned)

    silent, flood = FakeAdapter([Pause()]), Flood(lambda reported: False)
    async with Supervisor(Slow()) as supervisor:
        limited = Policy(name="limited", limits=Limits(max_idle_ms=5_000))
        slow = await supervisor.start(silent, "go", policies=[limited], run_id="slow")
        await trio.testing.wait_all_tasks_blocked()
        autojump_clock.jump(10)
        handle = await supervisor.start(flood, "go", policies=[permissive])
        with trio.fail_after(4):
            await handle.wait()
        answers.set()
        with pytest.raises(PolicyViolationError):
            await slow.wait()

    assert flood.reported == MOST


async def test_an_agent_that_never_waits_is_not_held_up_once_the_other_is_told_to_stop(
    autojump_clock: trio.testing.MockClock, permissive: Policy
) -> None:
    """However long the end of that run takes to be recorded: no time passes."""
    answers = trio.Event()

    class Slow(MemoryStore):
        async def append(self, events: Sequence[Event], **owned: Any) -> list[Event]:
            if any(event.type == "run_cancelled" for event in events):
                await answers.wait()
            return await super().append(events, **owned)

    silent, flood = FakeAdapter([Pause()]), Flood(lambda reported: False)
    async with Supervisor(Slow()) as supervisor:
        slow = await supervisor.start(silent, "go", policies=[permissive])
        await trio.testing.wait_all_tasks_blocked()
        async with trio.open_nursery() as tasks:
            tasks.start_soon(slow.cancel)
            await trio.testing.wait_all_tasks_blocked()
            began = trio.current_time()
            handle = await supervisor.start(flood, "go", policies=[permissive])
            await handle.wait()
            took = trio.current_time() - began
            answers.set()

    assert (silent.closed, flood.reported) == (1, MOST)
    assert took == 0
