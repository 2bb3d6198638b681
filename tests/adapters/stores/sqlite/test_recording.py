"""The writer thread: jobs do not affect each other, a full disk loses nothing, locks are kept, and each row has its
digest.
"""

import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from stored_rows import stored_events, stored_rows

from proctor.adapters.stores import SQLiteStore
from proctor.adapters.stores.audit.audit import audited
from proctor.adapters.stores.sqlite import file as descriptors
from proctor.adapters.stores.tables.batches import Batch
from proctor.policies.events import Event, MessageReceived, RunCompleted, RunStarted
from proctor.supervisor import StoreError, export_lines, import_lines, prune
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = pytest.mark.anyio


def message(text: str, *, event_id: str = "", session_id: str = "s") -> MessageReceived:
    return MessageReceived(session_id=session_id, content=text, event_id=event_id)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    async with SQLiteStore(tmp_path / "record.db", max_bytes=600_000, busy_timeout_s=0.05) as store:
        yield store


async def test_a_full_disk_rejects_and_loses_nothing(store: SQLiteStore) -> None:
    """Every acknowledged event can be read, and smaller writes are stored."""
    acknowledged: list[Event] = []

    async def fill() -> None:
        while True:
            acknowledged.extend(await store.append([message("x" * 20_000)] * 3))

    with pytest.raises(StoreError, match="is full: free space") as caught:
        await fill()

    assert caught.value.kind == "unwritable"
    assert len(acknowledged) > 3
    assert await stored_events(store) == acknowledged
    assert await store.last_seq("s") == len(acknowledged)
    acknowledged += await store.append([message("small")])
    assert await stored_events(store) == acknowledged


async def test_a_batch_too_large_for_the_disk_affects_no_other(store: SQLiteStore) -> None:
    """Batches committed together with it are stored separately."""
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
    assert [event.seq for event in await stored_events(store)] == list(range(1, 16))


async def test_a_damaged_event_is_named(store: SQLiteStore) -> None:
    """Reading stops there, with its position."""
    await store.append([message("a"), message("b")])
    stored_rows(store.path, "UPDATE events SET data = x'7b' WHERE seq = 2")
    with pytest.raises(StoreError, match="record 2 of session `s` cannot be read") as caught:
        await stored_events(store)

    assert caught.value.kind == "corrupt"


async def test_one_writer_serves_several_event_loops(store: SQLiteStore) -> None:
    """Each waiter is woken in its own loop."""

    def elsewhere(backend: str) -> None:
        async def append() -> None:
            for n in range(20):
                await store.append([message(f"{backend} {n}")])

        anyio.run(append, backend=backend)

    async with anyio.create_task_group() as tasks:
        for backend in ("asyncio", "trio"):
            tasks.start_soon(anyio.to_thread.run_sync, elsewhere, backend)
        for _ in range(20):
            await store.append([message("here")])

    assert [event.seq for event in await stored_events(store)] == list(range(1, 61))


async def test_a_batch_larger_than_a_transaction_is_written_in_order(store: SQLiteStore) -> None:
    """A batch of thousands stays one unit; others are before or after it."""
    results: list[list[Event]] = []

    async def append(size: int) -> None:
        results.append(await store.append([message("x")] * size))

    async with anyio.create_task_group() as tasks:
        for size in (1, 1500, 3, 700, 63, 129):
            tasks.start_soon(append, size)
    events = await stored_events(store)

    assert [event.seq for event in events] == list(range(1, 1 + 1 + 1500 + 3 + 700 + 63 + 129))
    for batch in results:
        assert batch == events[batch[0].seq - 1 : batch[-1].seq]


async def test_small_jobs_do_not_wait_for_large_ones(tmp_path: Path) -> None:
    """The start or the end of a run overtakes earlier large jobs, except the oldest."""
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


COMES_AND_GOES = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT * FROM events'); c.close()"


OLD = datetime.now(UTC) - timedelta(days=100)


def another_process_comes_and_goes(path: Path) -> None:
    """When it closes the file, it removes the log if no other process seems to have the file open."""
    subprocess.run([sys.executable, "-I", "-S", "-c", COMES_AND_GOES, str(path)], check=True)


async def opens_it_again(path: Path) -> None:
    async with SQLiteStore(path):
        pass


async def keeps_a_second_store(path: Path) -> None:
    store = SQLiteStore(path)
    await store.append([MessageReceived(session_id="s")])
    with suppress(StoreError):
        SQLiteStore(path.with_name("none") / "record.db")
    await store.aclose()


async def links_to_it(path: Path) -> None:
    link = path.with_name("link.db")
    link.symlink_to(path)
    await opens_it_again(link)


async def audits_it(path: Path) -> None:
    assert audited(str(path)).findings == ()


async def prunes_it(path: Path) -> None:
    """The file shrinks, so its header is checked."""
    async with SQLiteStore(path) as store:
        ids = {"run_id": "r_old", "session_id": "old", "at": OLD}
        some = [MessageReceived(content="x" * 100_000, **ids) for _ in range(20)]  # type: ignore[arg-type]
        await store.append([RunStarted(**ids), *some, RunCompleted(**ids)])  # type: ignore[arg-type]
        assert (await prune(store, older_than=timedelta(days=90))).sessions == 1


async def exports_and_imports_it(path: Path) -> None:
    async with SQLiteStore(path) as store, SQLiteStore(path.with_name("copy.db")) as copy:
        lines = [line async for line in export_lines(store)]
        await import_lines(copy, lines)


async def opens_invalid_files(path: Path) -> None:
    """A rejected file beside it, and one that is no store."""
    other = path.with_name("other.db")
    other.write_bytes(b"no store")
    with pytest.raises(StoreError):
        SQLiteStore(other)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("what", [
    opens_it_again,
    keeps_a_second_store,
    links_to_it,
    audits_it,
    prunes_it,
    exports_and_imports_it,
    opens_invalid_files,
])  # fmt: skip
async def test_the_log_stays_while_a_store_is_open(what: Callable[[Path], Awaitable[None]], tmp_path: Path) -> None:
    """Whatever this process does with the file, and whatever other processes open and close it."""
    path = tmp_path / "record.db"
    async with SQLiteStore(path) as store:
        await store.append([MessageReceived(session_id="s")])
        await what(path)
        await store.append([MessageReceived(session_id="s")])  # so that it has read the file
        before = path.with_name("record.db-wal").stat().st_ino
        another_process_comes_and_goes(path)
        after = path.with_name("record.db-wal").stat().st_ino
        await store.append([MessageReceived(session_id="s")])

        assert after == before
        assert await store.last_seq("s") >= 3


async def test_no_descriptor_is_kept_after_a_close_or_a_failed_opening(tmp_path: Path) -> None:
    """One while there are connections, none afterwards. The log has uncommitted content, which is noticed last."""
    path = tmp_path / "record.db"
    log = path.with_name("record.db-wal")
    async with SQLiteStore(path) as store, SQLiteStore(path) as other:
        await store.append([MessageReceived(session_id="s")])
        assert await other.last_seq("s") == 1
        kept = descriptors._kept[descriptors.file_id(path.stat())]
        before = kept.connections
        with log.open("r+b") as file:
            file.seek(log.stat().st_size - 4096 - 16)  # the salt of the last page
            file.write(bytes(8))
        with pytest.raises(StoreError, match="the log of store"):
            SQLiteStore(path)

        assert kept.connections == before

    assert kept not in descriptors._kept.values()


def digests(path: Path) -> dict[tuple[str, int], bytes]:
    """The digests of all rows, by session and seq; each is checked against the one before."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(
            "SELECT session_id, seq, data, digest FROM events JOIN sessions ON key = session_key ORDER BY key, seq"
        ).fetchall()
    found: dict[tuple[str, int], bytes] = {}
    for session_id, seq, data, digest in rows:
        before = found.get((session_id, seq - 1)) or sha256(b"proctor record\0" + session_id.encode()).digest()
        assert digest == sha256(before + data).digest()
        found[session_id, seq] = digest
    return found


async def test_every_kind_of_write_links_events_by_digests(tmp_path: Path) -> None:
    """One statement for many sessions, batches that do not fit one, duplicate events, another process in between."""
    path = tmp_path / "s.db"
    async with SQLiteStore(path) as one, SQLiteStore(path) as other:
        await one.append([message("a"), message("b", session_id="t"), message("c", event_id="e")])
        await other.append([message("d"), message("nul \0 in an id", session_id="u", event_id="x\0y")])
        await one.append([message("again", event_id="e"), message("f")])
        await other.append([message("g"), message("h", session_id="t")])
        seqs = [event.seq for event in await stored_events(one)]

    assert seqs == list(range(1, 6))
    assert len(digests(path)) == 8


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_waiter_on_a_removed_file_is_woken(tmp_path: Path, replaced: bool) -> None:
    """Its next read gets the error. A removed file stores nothing that would wake anybody."""
    path, other = tmp_path / "record.db", tmp_path / "other.db"
    async with SQLiteStore(path) as store:
        token = await store.wait(0, 0)
        if replaced:
            other.write_bytes(path.read_bytes())
            other.replace(path)
        else:
            path.unlink()
        while await store.wait(token, 1) == token:
            pass
        with pytest.raises(StoreError, match="while it was in use"):
            await store.place()
