"""Stores that commit late, fail after they stored, or whose owner stands still beyond its lease: chaos with a seed.

`PROCTOR_LONG=500` plays so many rounds, in place of a few; a round that fails names its seed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio.testing

from proctor.adapters.stores import SQLiteStore
from proctor.adapters.stores.audit.audit import audited
from proctor.policies import parse_policies
from proctor.policies.events import TERMINAL, Event, MessageReceived, TokenUsageUpdated, ToolCallStarted
from proctor.supervisor import MemoryStore, Owner, ProctorError, StoreError, Supervisor, export_lines, import_lines
from proctor.supervisor.control.ownership import reap
from proctor.supervisor.testing import Ask, FakeAdapter

ROUNDS = int(os.environ.get("PROCTOR_LONG", "5"))
RUNS = 4
SLOW_S, SUSPENDED_S = 7.0, 120.0
POLICIES = parse_policies({"name": "p", "limits": {"max_tool_calls": 99}})


class Unreliable(MemoryStore):
    """One process's view of a store: `kept` has the record, and `acknowledged` what its appends answered."""

    def __init__(self, kept: MemoryStore, chance: random.Random) -> None:
        super().__init__()
        self.__dict__ |= {name: value for name, value in vars(kept).items() if name != "acknowledged"}
        self.acknowledged: list[Event] = []
        self._chance = chance
        self._stands_until = 0.0

    async def append(self, events: Sequence[Event], **owned: Any) -> list[Event]:
        """Store events early or late, and answer early, late, with an error, or when it goes on again."""
        stored = await self._perhaps(lambda: super(Unreliable, self).append(events, **owned))
        self.acknowledged += stored
        return stored

    async def renew(self, epoch: int, *, lease_s: float) -> None:
        """Renew a lease, unless its owner stands still."""
        await self._stand()
        await super().renew(epoch, lease_s=lease_s)

    async def register(self, owner: Owner, *, lease_s: float) -> Owner:
        """Let an owner in that nobody can see: its lease alone says whether it is there."""
        return await super().register(Owner(owner_id=owner.owner_id, host="elsewhere"), lease_s=lease_s)

    async def _perhaps(self, store: Callable[[], Awaitable[list[Event]]]) -> list[Event]:
        await self._stand()
        does = self._chance.choices(
            ["stores", "late", "answers late", "fails", "fails after", "silent", "stands"], [60, 8, 8, 4, 8, 4, 2]
        )[0]
        if does == "late":
            await anyio.sleep(SLOW_S)
        if does == "stands":
            self._stands_until = anyio.current_time() + SUSPENDED_S
            await self._stand()
        if does == "fails":
            raise StoreError("it was cut off before", kind="unwritable")
        stored = await store()
        if does == "answers late":
            await anyio.sleep(SLOW_S)
        if does == "fails after":
            raise StoreError("it was cut off after", kind="unwritable")
        if does == "silent":
            await anyio.sleep(600)
        return stored

    async def _stand(self) -> None:
        await anyio.sleep(max(0.0, self._stands_until - anyio.current_time()))


def script(run: int) -> list[Any]:
    """Calls with ids that are used again once they are over, messages and usage, each told apart from the others."""
    steps: list[Any] = []
    for n in range(5):
        steps += [Ask(id=f"c{n % 2}", name="bash", input={"n": n}), MessageReceived(content=f"{run}:{n}")]
        steps.append(TokenUsageUpdated(input_tokens=1))
    return steps


async def supervised(store: Unreliable, number: int) -> None:
    """Some runs of one process, whatever becomes of them."""
    with suppress(ProctorError):
        async with Supervisor(store) as supervisor, anyio.create_task_group() as tasks:
            for n in range(RUNS):
                tasks.start_soon(_run, supervisor, f"r{number}.{n}", RUNS * number + n)


async def _run(supervisor: Supervisor, run_id: str, n: int) -> None:
    with suppress(ProctorError):
        about: dict[str, Any] = {"run_id": run_id, "session_id": f"s-{run_id}"}
        handle = await supervisor.start(FakeAdapter(script(n)), "go", policies=POLICIES, **about)
        await handle.wait()
        await anyio.sleep(SUSPENDED_S)


def check_run(events: Sequence[Event]) -> None:
    """One end, nothing behind it, nothing twice, no gap."""
    ends = [isinstance(event, TERMINAL) for event in events]
    texts = [event.content for event in events if isinstance(event, MessageReceived)]
    inputs = [event.tool_input["n"] for event in events if isinstance(event, ToolCallStarted)]

    assert ends == [False] * (len(events) - 1) + [True]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert (len(texts), len(inputs)) == (len({*texts}), len({*inputs}))


@pytest.mark.trio
@pytest.mark.parametrize("seed", range(ROUNDS))
async def test_every_run_ends_once_and_keeps_what_was_acknowledged(
    seed: int, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """Two processes on one store, and a third that ends what they leave behind. The audit finds nothing."""
    kept = MemoryStore()
    views = [Unreliable(kept, random.Random(f"{seed}.{number}")) for number in range(2)]
    async with anyio.create_task_group() as tasks:
        for number, view in enumerate(views):
            tasks.start_soon(supervised, view, number)
    await anyio.sleep(SUSPENDED_S)
    await reap(kept)
    runs = [run for run in await kept.runs() if run.status != "created"]
    records = {run.run_id: [event async for event in kept.read(run.session_id)] for run in runs}
    for run in runs:
        check_run(records[run.run_id])
        assert run.status in ("completed", "failed", "cancelled"), run
    for event in (event for view in views for event in view.acknowledged):
        assert records[event.run_id][event.seq - 1] == event
    lines = [line async for line in export_lines(kept)]
    await trio.to_thread.run_sync(lambda: anyio.run(_imported, tmp_path / "s.db", lines))

    assert audited(tmp_path / "s.db").findings == ()


async def _imported(path: Path, lines: list[bytes]) -> None:
    async with SQLiteStore(path) as store:
        await import_lines(store, lines)
