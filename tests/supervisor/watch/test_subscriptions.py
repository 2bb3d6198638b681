"""A subscription delivers every event from its start or its cursor on, once, and frees its resources."""

import gc
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from supervised import OPEN

from proctor.adapters.stores import SQLiteStore
from proctor.adapters.stores.sqlite.file import copy_store
from proctor.policies.events import Event, MessageReceived, RecordPruned, RunCancelled, RunStarted
from proctor.policies.events.run_context import RunContext
from proctor.supervisor import MemoryStore, Store, StoreError, Supervisor, UsageError, run_once
from proctor.supervisor.testing.fakes import FakeAdapter
from proctor.supervisor.watch.subscriptions import Subscriptions

pytestmark = pytest.mark.anyio


async def test_a_subscription_starts_when_it_is_entered() -> None:
    """A whole run may end before the first event is read."""
    async with Supervisor(MemoryStore()) as supervisor, supervisor.subscribe() as events:
        handle = await supervisor.start(FakeAdapter([MessageReceived(content="x")]), "go", policies=[OPEN])
        result = await handle.wait()
        seen = [await anext(events) for _ in result.events]

    assert seen == list(result.events)


@pytest.mark.parametrize("what", ["all", "session", "run"])
async def test_a_subscription_left_by_break_frees_its_resources(what: str) -> None:
    """No generator remains for the garbage collector, and no more events are delivered."""
    given: dict[str, Any] = {"all": {}, "session": {"session_id": "s"}, "run": {"run_id": "r"}}[what]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async with Supervisor(MemoryStore()) as supervisor:
            first = await supervisor.start(
                FakeAdapter([MessageReceived(content="x")]), "go", policies=[OPEN], session_id="s", run_id="r"
            )
            await first.wait()
            async with supervisor.subscribe(**given) as events:
                await supervisor.start(FakeAdapter(), "go", policies=[OPEN])
                async for _ in events:
                    break
                assert supervisor.statistics().subscribers == 1
            left = supervisor.statistics().subscribers
        del events
        gc.collect()

    assert left == 0


async def test_an_error_in_the_body_is_raised_unchanged() -> None:
    """An exception closes the subscription as `break` does, even if no event was read."""
    async with Supervisor(MemoryStore()) as supervisor:
        with pytest.raises(KeyError):
            async with supervisor.subscribe():
                raise KeyError
        left = supervisor.statistics().subscribers

    assert left == 0


@pytest.mark.parametrize("leads", [True, False])
async def test_a_reader_ends_when_another_task_closes_the_subscription(leads: bool) -> None:
    """Its events end. Two tasks can't read one subscription."""
    async with Supervisor(MemoryStore()) as supervisor, anyio.create_task_group() as tasks:
        if not leads:
            tasks.start_soon(anext, supervisor.subscribe())
            await anyio.wait_all_tasks_blocked()
        events, seen = supervisor.subscribe(), list[Event]()

        async def read() -> None:
            seen.extend([event async for event in events])

        async with anyio.create_task_group() as reading:
            reading.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(UsageError, match="read by one task at a time"):
                await anext(events)
            await events.aclose()
        tasks.cancel_scope.cancel()

    assert seen == []


async def test_a_subscription_includes_runs_of_other_processes(tmp_path: Path) -> None:
    """Runs of another supervisor on the same file, in new and existing sessions. Earlier events are not included."""
    path = tmp_path / "record.db"
    async with (
        SQLiteStore(path) as here,
        SQLiteStore(path) as there,
        Supervisor(here) as watching,
        Supervisor(there) as other,
    ):

        async def run(supervisor: Supervisor, session_id: str) -> list[Event]:
            adapter = FakeAdapter([MessageReceived(content=f"m{n}") for n in range(5)])
            handle = await supervisor.start(adapter, "go", policies=[OPEN], session_id=session_id)
            return list((await handle.wait()).events)

        await run(other, "old")
        await run(watching, "mine")
        async with watching.subscribe(after="now") as events:
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
            seen = [await anext(events) for _ in expected]

    def by_place(events: list[Event]) -> list[tuple[str, int]]:
        return sorted((event.session_id, event.seq) for event in events)

    assert by_place(seen) == by_place(expected)
    for session_id in ("new", "old", "mine"):
        order = [event.seq for event in seen if event.session_id == session_id]
        assert order == sorted(order)


async def test_events_stored_while_a_subscription_is_entered_are_delivered_once(tmp_path: Path) -> None:
    """A writer is active throughout. From the first delivered event on, every event comes once."""
    path = tmp_path / "record.db"
    async with SQLiteStore(path) as here, SQLiteStore(path) as there, Supervisor(here) as watching:
        await there.append([MessageReceived(session_id="s", run_id="r", content="first")])
        count = 40

        async def write() -> None:
            for number in range(count):
                await there.append([MessageReceived(session_id="s", run_id="r", content=str(number))])

        seen: list[int] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            async with watching.subscribe(after="now") as events:
                entered = await here.last_seq("s")
                await there.append([MessageReceived(session_id="s", run_id="r", content="after")])
                async for event in events:
                    seen.append(event.seq)
                    if event.seq == count + 2:
                        break

    assert seen == list(range(seen[0], count + 3))
    assert 1 < seen[0] <= entered + 1


async def test_closing_the_store_of_a_subscription_raises_its_own_error() -> None:
    """Not a group of errors."""
    store = MemoryStore()
    async with anyio.create_task_group() as tasks:
        supervisor = Supervisor(store)

        async def close() -> None:
            await anyio.wait_all_tasks_blocked()
            await store.aclose()

        async with supervisor, supervisor.subscribe() as events:
            tasks.start_soon(close)
            with pytest.raises(StoreError, match="closed"):
                await anext(events)


async def test_an_ended_run_can_be_followed_to_its_end_from_any_cursor() -> None:
    """From its start, or after its last event, when nothing is left to wait for."""
    store = MemoryStore()
    events = (await run_once(FakeAdapter(), "go", policies=[OPEN], store=store)).events
    async with Supervisor(store) as supervisor:
        for after in (0, 2, events[-1].seq):
            seen = [event async for event in supervisor.subscribe(run_id=events[0].run_id, after=after)]
            assert seen == [event for event in events if event.seq > after]
        for place, expected in (("start", list(events)), ("now", [])):
            assert [event async for event in supervisor.subscribe(run_id=events[0].run_id, after=place)] == expected


def places(events: list[Event]) -> list[tuple[str, int]]:
    return [(event.session_id, event.seq) for event in events]


async def take(count: int, hub: Subscriptions | Supervisor, **what: Any) -> tuple[list[Event], Any]:
    """This many events, and the cursor after them."""
    seen: list[Event] = []
    async with hub.subscribe(**what) as events:
        while len(seen) < count:
            seen.append(await anext(events))
        return seen, events.cursor


async def write(store: Store, count: int, *sessions: str, run_id: str = "r") -> None:
    """This many events to each session, one append each."""
    for n in range(count):
        for session_id in sessions:
            await store.append([MessageReceived(session_id=session_id, run_id=f"{run_id}_{session_id}", content=n)])


async def test_all_events_can_be_followed_from_the_start_and_from_any_cursor() -> None:
    """Stored events are delivered again each time; later ones follow."""
    store = MemoryStore()
    hub = Subscriptions(store)
    await write(store, 3, "s", "t")
    first, cursor = await take(4, hub, after="start")
    rest, end = await take(2, hub, after=cursor)
    await write(store, 1, "u")
    new, _ = await take(1, hub, after=end)

    assert places(first + rest) == [("s", 1), ("t", 1), ("s", 2), ("t", 2), ("s", 3), ("t", 3)]
    assert places(new) == [("u", 1)]
    assert (await take(7, hub))[0] == first + rest + new
    assert isinstance(cursor, str)


async def test_leaving_and_resuming_repeatedly_misses_nothing() -> None:
    """With cursors of all events, of a session and of a run, while two tasks write."""
    store = MemoryStore()
    hub = Subscriptions(store)
    seen: dict[str, list[Event]] = {"all": [], "session": [], "run": []}

    async def follow(name: str, count: int, after: Any, **what: Any) -> None:
        while len(seen[name]) < count:
            found, after = await take(min(1 + len(seen[name]) % 7, count - len(seen[name])), hub, after=after, **what)
            seen[name] += found
            await anyio.lowlevel.checkpoint()

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


async def test_a_tenants_subscription_has_the_events_of_all_its_runs_and_no_others() -> None:
    """From now on, from the start, and from a cursor."""
    async with Supervisor(MemoryStore()) as supervisor:

        async def run(tenant: str) -> list[Event]:
            adapter = FakeAdapter([MessageReceived(content=tenant)])
            context = RunContext(tenant=tenant)
            handle = await supervisor.start(adapter, "go", policies=[OPEN], context=context)
            return list((await handle.wait()).events)

        before = await run("acme")
        async with supervisor.subscribe(tenant="acme", after="now") as events:
            await run("other")
            mine = await run("acme")
            live = [await anext(events) for _ in mine]
            cursor = events.cursor
        again = await run("acme")
        stored, _ = await take(len(before + mine + again), supervisor, tenant="acme")
        since, _ = await take(len(again), supervisor, tenant="acme", after=cursor)

    assert live == mine
    assert stored == before + mine + again
    assert since == again


async def test_a_cancelled_leader_leaves_nobody_waiting() -> None:
    """Another subscriber takes over, again and again."""
    store = MemoryStore()
    hub = Subscriptions(store)
    seen: list[int] = []

    async def wait_for_ever(scope: anyio.CancelScope) -> None:
        with scope:
            await take(1000, hub)

    async def listen() -> None:
        seen.extend(event.seq for event in (await take(5, hub, session_id="s"))[0])

    scopes = [anyio.CancelScope() for _ in range(5)]
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


async def test_a_run_that_another_process_ends_is_followed_to_its_end() -> None:
    """Whether its end is stored before the first read or after it."""
    for late in range(6):
        store = MemoryStore()
        hub = Subscriptions(store)
        await store.append([RunStarted(session_id="s", run_id="r")])

        async def end(store: Store = store, late: int = late) -> None:
            for _ in range(late):
                await anyio.lowlevel.checkpoint()
            await store.append([RunCancelled(session_id="s", run_id="r")])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(end)
            seen = [event.seq async for event in hub.subscribe(run_id="r")]

        assert seen == [1, 2]


@pytest.mark.parametrize(("given", "message"), [
    *(({"types": types}, "types") for types in ("run_started", [], ["run_startd"], [7], [bytearray()], 3)),
    ({"tenant": "acme", "session_id": "s"}, "name a tenant, or a session or a run"),
    *(({name: ["r"]}, "not text") for name in ("session_id", "run_id", "tenant")),
    ({"run_id": "nothing"}, "no run"),
    ({"run_id": "r", "session_id": "other"}, "no run"),
    ({"run_id": "r", "after": "begin"}, "`after`"),
    *(({"session_id": "s", "after": after}, "last event seen") for after in (-1, 2**63, "7", 1.5, True, None)),
    *(({"after": 7, **of}, "session `s` ends at 1") for of in ({"session_id": "s"}, {"run_id": "r"})),
    *(({"after": after}, "counts within one session") for after in (7, True, None)),
    ({"after": "yesterday"}, "it is the `cursor` of a subscription, `start` or `now`"),
    ({"after": f"store.{'9' * 5000}"}, "it is the `cursor` of a subscription"),
    ({"after": "other.5"}, "a cursor of another store"),
    ({"after": "ahead"}, "it is an older copy"),
    ({"after": "changed"}, "another event there: it is an older copy"),
])  # fmt: skip
async def test_an_invalid_subscription_is_an_error(given: dict[str, Any], message: str) -> None:
    """At the latest when it is entered, or with the first event if it is not."""
    store = MemoryStore()
    await store.append([RunStarted(session_id="s", run_id="r")])
    place = await store.place()
    if given.get("after") == "ahead":
        given = {"after": f"{place.store_id}.99"}
    if given.get("after") == "changed":
        given = {"after": f"{place.store_id}.1-0123456789abcdef"}
    async with Supervisor(store) as supervisor:
        with pytest.raises(UsageError, match=message):
            await supervisor.subscribe(**given).__aenter__()
        with pytest.raises(UsageError, match=message):
            await anext(supervisor.subscribe(**given))


async def test_a_saved_cursor_is_rejected_by_an_older_copy_that_has_grown(tmp_path: Path) -> None:
    """At the cursor's position it has another event: what was stored up to there would be missed."""
    async with SQLiteStore(tmp_path / "runs.db") as store:
        await write(store, 2, "s")
        copy_store(tmp_path / "runs.db", tmp_path / "copy.db")
        await write(store, 3, "s")
        _, cursor = await take(4, Subscriptions(store))
        after_it, _ = await take(1, Subscriptions(store), after=cursor)
    async with SQLiteStore(tmp_path / "copy.db") as copy:
        _, old = await take(2, Subscriptions(copy))
        await write(copy, 9, "t")
        with pytest.raises(UsageError, match="another event there: it is an older copy"):
            await take(1, Subscriptions(copy), after=cursor)
        following, _ = await take(9, Subscriptions(copy), after=old)

    assert places(after_it) == [("s", 5)]
    assert places(following) == [("t", seq) for seq in range(1, 10)]


async def test_a_saved_cursor_is_valid_after_its_event_was_pruned() -> None:
    """Whoever continues gets the event that stands for those that were removed."""
    store = MemoryStore()
    await write(store, 3, "old")
    _, cursor = await take(2, Subscriptions(store))
    await store.append([RunCancelled(session_id="old", run_id="r_old")])
    await store.prune(RecordPruned(session_id="old", at=datetime.now(UTC)), up_to=4)
    await write(store, 1, "new")
    following, _ = await take(2, Subscriptions(store), after=cursor)

    assert places(following) == [("old", 5), ("new", 1)]
    assert isinstance(following[0], RecordPruned)


async def test_a_reader_behind_its_run_learns_that_the_run_was_pruned(tmp_path: Path) -> None:
    """Of the session and of everything, it gets the event that stands for what is gone; of the run, an error: its
    events would seem to end before they do.
    """
    async with SQLiteStore(tmp_path / "runs.db") as store:
        await write(store, 3, "s")
        await store.append([RunCancelled(session_id="s", run_id="r_s")])
        hub = Subscriptions(store)
        async with (
            hub.subscribe(session_id="s") as session,
            hub.subscribe() as everything,
            hub.subscribe(run_id="r_s", after=1) as run,
        ):
            await store.prune(RecordPruned(session_id="s", at=datetime.now(UTC)), up_to=4)
            for events in (session, everything):
                pruned = await anext(events)
                assert isinstance(pruned, RecordPruned)
                assert (pruned.seq, pruned.last_seq) == (5, 4)
            with pytest.raises(StoreError, match="run `r_s` was pruned"):
                await anext(run)


@pytest.mark.parametrize("grown", [0, 9])
async def test_a_subscriber_misses_nothing_after_an_older_copy_replaced_the_store(grown: int) -> None:
    """Also if other subscribers have not noticed yet, and whether or not the copy has more events by now."""
    store, copy = MemoryStore(), MemoryStore()
    subscriptions = Subscriptions(store)

    async def append(text: str) -> None:
        await store.append([MessageReceived(session_id="s", content=text)])

    async def waits_for(events: Any, text: str) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anext, events)
            await anyio.wait_all_tasks_blocked()
            await append(text)

    async with subscriptions.subscribe() as unread, subscriptions.subscribe() as first:
        await waits_for(first, "lost")
        vars(store).update({name: vars(copy)[name] for name in ("_records", "_sessions", "_runs")})
        for n in range(grown):
            await append(f"{n}")
        async with subscriptions.subscribe(after="now") as new:
            await waits_for(new, "new")
        for each in (unread, first):
            with pytest.raises(StoreError, match="older copy took its place"):
                await anext(each)
