"""Subscribers do not slow runs down: events of a supervisor's own runs are passed on in memory."""

from collections import Counter
from typing import Any

import anyio
import pytest

from proctor.policies import parse_policies
from proctor.policies.events import MessageReceived, RunCompleted
from proctor.supervisor import MemoryStore, Supervisor
from proctor.supervisor.testing.fakes import FakeAdapter

pytestmark = pytest.mark.anyio
POLICIES = parse_policies("{name: open, limits: {max_tool_calls: 9}}")
RUNS = 60
EVENTS = 30
READING = ("read", "log", "place", "run", "runs", "session")


class Counting(MemoryStore):
    """Counts the reads."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __getattribute__(self, name: str) -> Any:
        if name in READING:
            super().__getattribute__("calls")[name] += 1
        return super().__getattribute__(name)


async def ran(followers: int) -> tuple[Counter[str], list[int]]:
    """Subscribe to this many of the runs from their start; the number of reads, and of events that each subscriber
    got.
    """
    store, seen = Counting(), [0] * followers
    agent = FakeAdapter([MessageReceived(content=f"{n}") for n in range(EVENTS)])

    async def follow(number: int, run_id: str) -> None:
        async with supervisor.subscribe(run_id=run_id) as events:
            async for event in events:
                seen[number] += 1
                if isinstance(event, RunCompleted):
                    return

    async with Supervisor(store) as supervisor, anyio.create_task_group() as tasks:
        for number in range(RUNS):
            handle = await supervisor.start(agent, "go", policies=POLICIES)
            if number < followers:
                tasks.start_soon(follow, number, handle.run_id)
    return store.calls, seen


async def test_subscribers_read_the_store_a_few_times_and_not_for_each_event() -> None:
    """So starting a run costs the same with and without subscribers."""
    alone, _ = await ran(0)
    beside, seen = await ran(RUNS)

    assert len(set(seen)) == 1
    assert seen[0] > EVENTS
    assert sum(beside[name] - alone[name] for name in READING if name != "log") <= 4 * RUNS
    assert beside["log"] <= RUNS * EVENTS / 2  # once for many events and all subscribers, not for each
