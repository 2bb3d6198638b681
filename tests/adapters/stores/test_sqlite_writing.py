"""The writer: one job's trouble is nobody else's, a full disk loses nothing, cancelling is safe."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import pytest

from proctor.adapters.stores import SQLiteStore
from proctor.adapters.stores.tables.transactions import Batch
from proctor.policies.events import Event, MessageReceived
from proctor.supervisor.errors import StoreError
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = pytest.mark.anyio


def message(text: str, *, event_id: str = "", session_id: str = "s") -> MessageReceived:
    return MessageReceived(session_id=session_id, content=text, event_id=event_id)


async def stored(store: SQLiteStore, session_id: str = "s") -> list[Event]:
    return [event async for event in store.read(session_id)]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    async with SQLiteStore(tmp_path / "record.db", max_bytes=600_000, busy_timeout_s=0.05) as store:
        yield store


async def test_a_full_disk_refuses_and_loses_nothing(store: SQLiteStore) -> None:
    """Everything acknowledged can be read, and what still fits is stored."""
    acknowledged: list[Event] = []

    async def fill() -> None:
        while True:
            acknowledged.extend(await store.append([message("x" * 20_000)] * 3))

    with pytest.raises(StoreError, match="is full: free space") as caught:
        await fill()

    assert caught.value.kind == "unwritable"
    assert len(acknowledged) > 3
    assert await stored(store) == acknowledged
    assert await store.last_seq("s") == len(acknowledged)
    acknowledged += await store.append([message("small")])
    assert await stored(store) == acknowledged


async def test_a_batch_too_large_for_the_disk_takes_no_other_with_it(store: SQLiteStore) -> None:
    """Those committed together with it are stored on their own."""
    kinds: list[str] = []

    async def append_huge() -> None:
        try:
            await store.append([message("x" * 1_000_000)])
        except StoreError as error:
            kinds.append(error.kind)

    async with anyio.create_task_group() as tasks:
        for n in range(20):
            tasks.start_soon(store.append, [message(str(n), event_id=f"e{n % 15}")])
            if n == 10:
                tasks.start_soon(append_huge)

    assert kinds == ["unwritable"]
    assert [event.seq for event in await stored(store)] == list(range(1, 16))


async def test_a_file_locked_by_another_process_is_an_error_and_then_works(store: SQLiteStore) -> None:
    """After the time the store may wait; nothing of the refused batch is stored."""
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="is locked by another process"):
        await store.append([message("refused")])
    other.execute("ROLLBACK")
    other.close()
    await store.append([message("stored")])

    assert [event.seq for event in await stored(store)] == [1]


async def test_a_record_that_was_damaged_is_named(store: SQLiteStore) -> None:
    """Reading stops there, and says where."""
    await store.append([message("a"), message("b")])
    other = sqlite3.connect(store.path)
    other.execute("UPDATE events SET data = x'7b' WHERE seq = 2")
    other.commit()
    other.close()
    with pytest.raises(StoreError, match="record 2 of session `s` cannot be read") as caught:
        await stored(store)

    assert caught.value.kind == "corrupt"


async def test_one_writer_serves_several_event_loops(store: SQLiteStore) -> None:
    """Each waiter is woken in the loop it waits in."""

    def elsewhere(backend: str) -> None:
        async def append() -> None:
            for n in range(20):
                await store.append([message(f"{backend} {n}")])

        anyio.run(append, backend=backend)

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            for backend in ("asyncio", "trio"):
                tasks.start_soon(anyio.to_thread.run_sync, elsewhere, backend)
            for _ in range(20):
                await store.append([message("here")])

    assert [event.seq for event in await stored(store)] == list(range(1, 61))


async def test_reading_continues_while_others_write(store: SQLiteStore) -> None:
    """A reader sees a prefix without gaps, whole batches only."""
    lengths: list[int] = []

    async def read() -> None:
        while not lengths or lengths[-1] < 200:
            events = await stored(store)
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
            lengths.append(len(events))

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            for n in range(50):
                await store.append([message(str(n))] * 4)

    assert all(length % 4 == 0 for length in lengths)
    assert lengths == sorted(lengths)


async def test_more_than_a_transaction_holds_is_written_in_order(store: SQLiteStore) -> None:
    """One batch of thousands stays one unit; others go before or after it."""
    results: list[list[Event]] = []

    async def append(size: int) -> None:
        results.append(await store.append([message("x")] * size))

    async with anyio.create_task_group() as tasks:
        for size in (1, 1500, 3, 700, 63, 129):
            tasks.start_soon(append, size)
    events = await stored(store)

    assert [event.seq for event in events] == list(range(1, 1 + 1 + 1500 + 3 + 700 + 63 + 129))
    for batch in results:
        assert batch == events[batch[0].seq - 1 : batch[-1].seq]


async def test_two_writers_of_one_session_take_turns(store: SQLiteStore) -> None:
    """Each has remembered a state of the file that the other has changed since; no seq is lost or given twice."""
    async with SQLiteStore(store.path) as other:
        for n in range(5):
            await store.append([message(f"here {n}"), message(f"here too {n}", session_id="t")])
            await other.append([message(f"there {n}")])

    assert [event.seq for event in await stored(store)] == list(range(1, 11))
    assert [event.seq for event in await stored(store, "t")] == list(range(1, 6))


@pytest.mark.parametrize("id", ["nul\x00in it", "\\u0000", '"', "\u2028 \U0001f600"])
async def test_ids_are_kept_whatever_their_characters(store: SQLiteStore, id: str) -> None:
    """A run's and an event's, among others in one transaction."""
    event = MessageReceived(session_id="s", run_id=id, event_id=id, content=id)
    await store.append([message("before"), event, message("after")])
    again = await store.append([event])
    run = await store.run(id)

    assert [e.seq for e in await stored(store)] == [1, 2, 3]
    assert again == [msgspec.structs.replace(event, seq=2)]
    assert [e.seq async for e in store.read("s", run_id=id)] == [2]
    assert run is not None
    assert run.run_id == id


async def test_what_is_light_does_not_wait_for_what_is_heavy(tmp_path: Path) -> None:
    """The start of a run, or its end, goes before the floods that were queued ahead of it, but for the oldest."""
    order: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    async with SQLiteStore(tmp_path / "s.db") as store, anyio.create_task_group() as tasks:
        writer: Any = store._writer

        def work(name: str) -> Any:
            def done(*_: Any) -> None:
                if name == "held":
                    begun.set()
                    go_on.wait(PATIENCE_S)
                order.append(name)

            return done

        for name, weight in [("held", 1), ("heavy 1", 4000), ("heavy 2", 4000), ("light", 2), ("small", 50)]:
            tasks.start_soon(writer.do, work(name), Batch([message(name)] * weight))
            await anyio.to_thread.run_sync(begun.wait, PATIENCE_S)
            await anyio.wait_all_tasks_blocked()
        go_on.set()

    assert order == ["held", "heavy 1", "light", "small", "heavy 2"]
