"""A subscription continues from a cursor: everything stored since, once, however often it is left."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest

from proctor.policies.events import Event, MessageReceived, RunCancelled, RunStarted
from proctor.policies.events.run_context import RunContext
from proctor.policies.policy import Policy
from proctor.supervisor import MemoryStore, Supervisor, UsageError
from proctor.supervisor.ports.store import Store
from proctor.supervisor.testing import FakeAdapter
from proctor.supervisor.testing.fakes import PATIENCE_S
from proctor.supervisor.watch.subscriptions import Subscriptions

pytestmark = pytest.mark.anyio


def places(events: list[Event]) -> list[tuple[str, int]]:
    return [(event.session_id, event.seq) for event in events]


async def take(count: int, hub: Subscriptions | Supervisor, **what: Any) -> tuple[list[Event], Any]:
    """So many events, and the cursor after them."""
    seen: list[Event] = []
    with anyio.fail_after(PATIENCE_S):
        async with hub.subscribe(**what) as events:
            while len(seen) < count:
                seen.append(await anext(events))
            return seen, events.cursor


async def write(store: Store, count: int, *sessions: str, run_id: str = "r") -> None:
    """So many events to each session, one append each."""
    for n in range(count):
        for session_id in sessions:
            await store.append([MessageReceived(session_id=session_id, run_id=f"{run_id}_{session_id}", content=n)])


async def test_everything_is_followed_from_the_start_and_from_any_cursor() -> None:
    """What is stored comes again as often as it is asked for; what is stored later goes on from there."""
    store = MemoryStore()
    hub = Subscriptions(store)
    await write(store, 3, "s", "t")
    first, cursor = await take(4, hub, after="start")
    rest, end = await take(2, hub, after=cursor)
    await write(store, 1, "u")
    new, _ = await take(1, hub, after=end)

    assert places(first + rest) == [("s", 1), ("t", 1), ("s", 2), ("t", 2), ("s", 3), ("t", 3)]
    assert places(new) == [("u", 1)]
    assert (await take(7, hub, after="start"))[0] == first + rest + new
    assert isinstance(cursor, str)


async def test_left_and_resumed_all_the_time_it_misses_nothing() -> None:
    """By cursors of everything, of a session and of a run, while two tasks write."""
    store = MemoryStore()
    hub = Subscriptions(store)
    seen: dict[str, list[Event]] = {"all": [], "session": [], "run": []}

    async def follow(name: str, count: int, after: Any, **what: Any) -> None:
        while len(seen[name]) < count:
            found, after = await take(min(1 + len(seen[name]) % 7, count - len(seen[name])), hub, after=after, **what)
            seen[name] += found
            await anyio.lowlevel.checkpoint()

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            await write(store, 1, "s", "t")
            tasks.start_soon(write, store, 60, "s")
            tasks.start_soon(write, store, 60, "t")
            tasks.start_soon(follow, "all", 122, "start")
            tasks.start_soon(lambda: follow("session", 61, 0, session_id="s"))
            tasks.start_soon(lambda: follow("run", 61, 0, run_id="r_t"))

    assert sorted(places(seen["all"])) == [(name, n) for name in "st" for n in range(1, 62)]
    assert places(seen["session"]) == [event for event in places(seen["all"]) if event[0] == "s"]
    assert places(seen["run"]) == [event for event in places(seen["all"]) if event[0] == "t"]


async def test_a_tenants_events_are_those_of_all_its_runs(permissive: Policy) -> None:
    """And of nobody else's; from now on, from the start, from a cursor."""
    async with Supervisor(MemoryStore()) as supervisor:

        async def run(tenant: str) -> list[Event]:
            adapter = FakeAdapter([MessageReceived(content=tenant)])
            context = RunContext(tenant=tenant)
            handle = await supervisor.start(adapter, "go", policies=[permissive], context=context)
            return list((await handle.wait()).events)

        before = await run("acme")
        async with supervisor.subscribe(tenant="acme") as events:
            await run("other")
            mine = await run("acme")
            with anyio.fail_after(PATIENCE_S):
                live = [await anext(events) for _ in mine]
            cursor = events.cursor
        again = await run("acme")
        stored, _ = await take(len(before + mine + again), supervisor, tenant="acme", after="start")
        since, _ = await take(len(again), supervisor, tenant="acme", after=cursor)

    assert live == mine
    assert stored == before + mine + again
    assert since == again


async def test_many_follow_many_runs_and_each_sees_its_own(permissive: Policy) -> None:
    """While those who lead the reading leave, one after another."""
    async with Supervisor(MemoryStore()) as supervisor:
        seen: dict[str, list[Event]] = {}

        async def follow(run_id: str) -> None:
            async with supervisor.subscribe(run_id=run_id) as events:
                seen[run_id] = [event async for event in events]

        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                handles = []
                for _ in range(30):
                    adapter = FakeAdapter([MessageReceived(content=n) for n in range(20)])
                    handles.append(await supervisor.start(adapter, "go", policies=[permissive]))
                    tasks.start_soon(follow, handles[-1].run_id)
        results = {handle.run_id: list((await handle.wait()).events) for handle in handles}

    assert seen == results


async def test_who_is_cancelled_while_leading_leaves_nobody_waiting() -> None:
    """Another takes over, again and again."""
    store = MemoryStore()
    hub = Subscriptions(store)
    seen: list[int] = []

    async def wait_for_ever(scope: anyio.CancelScope) -> None:
        with scope:
            await take(1000, hub)

    async def listen() -> None:
        seen.extend(event.seq for event in (await take(5, hub, session_id="s"))[0])

    scopes = [anyio.CancelScope() for _ in range(5)]
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            for scope in scopes:
                tasks.start_soon(wait_for_ever, scope)
                await anyio.wait_all_tasks_blocked()
            tasks.start_soon(listen)
            for scope in scopes:
                await anyio.wait_all_tasks_blocked()
                scope.cancel()
                await write(store, 1, "s")

    assert seen == [1, 2, 3, 4, 5]
    assert hub.subscribers == 0


async def test_a_run_that_another_process_ends_while_it_is_entered_is_followed_to_its_end() -> None:
    """Whether its end is stored before the first look or after it."""
    for late in range(6):
        store = MemoryStore()
        hub = Subscriptions(store)
        await store.append([RunStarted(session_id="s", run_id="r")])

        async def end(store: Store = store, late: int = late) -> None:
            for _ in range(late):
                await anyio.lowlevel.checkpoint()
            await store.append([RunCancelled(session_id="s", run_id="r")])

        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(end)
                seen = [event.seq async for event in hub.subscribe(run_id="r")]

        assert seen == [1, 2]


@pytest.mark.parametrize(
    ("after", "message"),
    [
        ("yesterday", "it is the `cursor` of a subscription, or `start`"),
        ("other.5", "a cursor of another store"),
        (7, "counts within one session"),
        (True, "counts within one session"),
        (None, "counts within one session"),
        ("ahead", "it is an older copy"),
    ],
)
async def test_a_cursor_of_nothing_here_is_one_clear_error(after: Any, message: str) -> None:
    """On entering."""
    store = MemoryStore()
    if after == "ahead":
        after = f"{(await store.place()).store_id}.1"
    with pytest.raises(UsageError, match=message):
        await Subscriptions(store).subscribe(after=after).__aenter__()


async def test_a_tenant_is_not_named_beside_a_session() -> None:
    """Which of the two is meant?"""
    with pytest.raises(UsageError, match="name a tenant, or a session or a run"):
        Subscriptions(MemoryStore()).subscribe(tenant="acme", session_id="s")
