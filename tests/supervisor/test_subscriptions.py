"""A subscription sees everything from the moment it is entered, and leaves nothing behind."""

from __future__ import annotations

import gc
import warnings
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.adapters.stores import SQLiteStore
from proctor.policies.events import Event, MessageReceived
from proctor.policies.policy import Policy
from proctor.supervisor import MemoryStore, StoreError, Supervisor, UsageError
from proctor.supervisor.testing import FakeAdapter
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = pytest.mark.anyio


async def test_it_hears_from_the_moment_it_is_entered(permissive: Policy) -> None:
    """Before the first event is asked for, a whole run may come and go."""
    async with Supervisor(MemoryStore()) as supervisor, supervisor.subscribe() as events:
        handle = await supervisor.start(FakeAdapter([MessageReceived(content="x")]), "go", policies=[permissive])
        result = await handle.wait()
        with anyio.fail_after(PATIENCE_S):
            seen = [await anext(events) for _ in result.events]

    assert seen == list(result.events)


@pytest.mark.parametrize("what", ["all", "session", "run"])
async def test_left_by_a_break_it_leaves_nothing_open(what: str, permissive: Policy) -> None:
    """No generator for the collector to complain about, and nobody who is still handed events."""
    given: dict[str, Any] = {"all": {}, "session": {"session_id": "s"}, "run": {"run_id": "r"}}[what]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async with Supervisor(MemoryStore()) as supervisor:
            first = await supervisor.start(
                FakeAdapter([MessageReceived(content="x")]), "go", policies=[permissive], session_id="s", run_id="r"
            )
            await first.wait()
            async with supervisor.subscribe(**given) as events:
                await supervisor.start(FakeAdapter(), "go", policies=[permissive])
                async for _ in events:
                    break
            left = supervisor.statistics().subscribers
        del events
        gc.collect()

    assert left == 0


async def test_never_asked_for_an_event_it_leaves_nothing_open() -> None:
    """Entered and left."""
    async with Supervisor(MemoryStore()) as supervisor:
        async with supervisor.subscribe():
            entered = supervisor.statistics().subscribers
        left = supervisor.statistics().subscribers

    assert (entered, left) == (1, 0)


async def test_the_error_of_a_body_comes_out_as_it_is(permissive: Policy) -> None:
    """Leaving by an exception closes it like leaving by a break."""
    async with Supervisor(MemoryStore()) as supervisor:
        with pytest.raises(KeyError):
            async with supervisor.subscribe():
                raise KeyError
        left = supervisor.statistics().subscribers

    assert left == 0


async def test_a_run_that_is_not_there_is_known_on_entering() -> None:
    """Not at the first event."""
    async with Supervisor(MemoryStore()) as supervisor:
        with pytest.raises(UsageError, match="there is no run `r`"):
            await supervisor.subscribe(run_id="r").__aenter__()


async def test_iterated_without_being_entered_it_still_works(permissive: Policy) -> None:
    """From the first event that is asked for."""
    async with Supervisor(MemoryStore()) as supervisor:
        handle = await supervisor.start(FakeAdapter(), "go", policies=[permissive])
        seen = [event async for event in supervisor.subscribe(run_id=handle.run_id)]
        result = await handle.wait()

    assert seen == list(result.events)


async def test_it_hears_what_other_processes_run(tmp_path: Path, permissive: Policy) -> None:
    """Runs of another supervisor on the same file, in sessions new and old, next to its own; nothing of before."""
    path = tmp_path / "record.db"
    async with (
        SQLiteStore(path) as here,
        SQLiteStore(path) as there,
        Supervisor(here) as watching,
        Supervisor(there) as other,
    ):

        async def run(supervisor: Supervisor, session_id: str) -> list[Event]:
            adapter = FakeAdapter([MessageReceived(content=f"m{n}") for n in range(5)])
            handle = await supervisor.start(adapter, "go", policies=[permissive], session_id=session_id)
            return list((await handle.wait()).events)

        await run(other, "old")
        await run(watching, "mine")
        async with watching.subscribe() as events:
            expected = [
                event
                for supervisor, session_id in (
                    (other, "new"),
                    (other, "old"),
                    (watching, "old"),
                    (other, "mine"),
                    (watching, "new"),
                )
                for event in await run(supervisor, session_id)
            ]
            with anyio.fail_after(PATIENCE_S):
                seen = [await anext(events) for _ in expected]

    def by_place(events: list[Event]) -> list[tuple[str, int]]:
        return sorted((event.session_id, event.seq) for event in events)

    assert by_place(seen) == by_place(expected)
    for session_id in ("new", "old", "mine"):
        order = [event.seq for event in seen if event.session_id == session_id]
        assert order == sorted(order)


async def test_what_others_store_while_it_is_entered_comes_once(tmp_path: Path) -> None:
    """A writer goes on from before to after: what is heard begins somewhere, and from there has all, once."""
    path = tmp_path / "record.db"
    async with SQLiteStore(path) as here, SQLiteStore(path) as there, Supervisor(here) as watching:
        await there.append([MessageReceived(session_id="s", run_id="r", content="first")])
        count = 40

        async def write() -> None:
            for number in range(count):
                await there.append([MessageReceived(session_id="s", run_id="r", content=str(number))])

        seen: list[int] = []
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(write)
                async with watching.subscribe() as events:
                    entered = await here.last_seq("s")
                    await there.append([MessageReceived(session_id="s", run_id="r", content="after")])
                    async for event in events:
                        seen.append(event.seq)
                        if event.seq == count + 2:
                            break

    assert seen == list(range(seen[0], count + 3))
    assert 1 < seen[0] <= entered + 1


async def test_left_by_a_break_in_a_run_of_another_process_it_leaves_nothing_open(tmp_path: Path) -> None:
    """Nor is anybody handed events after it."""
    path = tmp_path / "record.db"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async with SQLiteStore(path) as here, SQLiteStore(path) as there, Supervisor(here) as watching:
            async with watching.subscribe() as events:
                await there.append([MessageReceived(session_id="s", run_id="r", content=str(n)) for n in range(3)])
                with anyio.fail_after(PATIENCE_S):
                    async for _ in events:
                        break
            left = watching.statistics().subscribers
        del events
        gc.collect()

    assert left == 0


async def test_a_store_that_is_closed_under_it_is_its_own_error() -> None:
    """Not a group of errors."""
    store = MemoryStore()
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            supervisor = Supervisor(store)

            async def close() -> None:
                await anyio.wait_all_tasks_blocked()
                await store.aclose()

            async with supervisor, supervisor.subscribe() as events:
                tasks.start_soon(close)
                with pytest.raises(StoreError, match="closed"):
                    await anext(events)
