"""Whatever this process does with a file, it keeps SQLite's locks on it: nobody removes the log of what is open."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from proctor.adapters.stores import SQLiteStore
from proctor.adapters.stores.audit.audit import audited
from proctor.adapters.stores.sqlite import file as descriptors
from proctor.policies.events import MessageReceived, RunCompleted, RunStarted
from proctor.supervisor import StoreError, export_lines, import_lines, prune

PROCESS = Path(__file__).with_name("appending_process.py")
OLD = datetime.now(UTC) - timedelta(days=100)


def another_process_comes_and_goes(path: Path) -> None:
    """When it closes the file, it removes the log if nobody else seems to have the file open."""
    command = [sys.executable, str(PROCESS), str(path), "other", "1", "asyncio"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


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
    """The file becomes smaller: its header is looked at."""
    async with SQLiteStore(path) as store:
        ids = {"run_id": "r_old", "session_id": "old", "at": OLD}
        some = [MessageReceived(content="x" * 100_000, **ids) for _ in range(20)]  # type: ignore[arg-type]
        await store.append([RunStarted(**ids), *some, RunCompleted(**ids)])  # type: ignore[arg-type]
        assert (await prune(store, older_than=timedelta(days=90))).sessions == 1


async def exports_and_imports_it(path: Path) -> None:
    async with SQLiteStore(path) as store, SQLiteStore(path.with_name("copy.db")) as copy:
        lines = [line async for line in export_lines(store)]
        await import_lines(copy, lines)


async def asks_for_what_is_none(path: Path) -> None:
    """A refused file beside it, and one that is no store."""
    other = path.with_name("other.db")
    other.write_bytes(b"no store")
    with pytest.raises(StoreError):
        SQLiteStore(other)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "what",
    [
        opens_it_again,
        keeps_a_second_store,
        links_to_it,
        audits_it,
        prunes_it,
        exports_and_imports_it,
        asks_for_what_is_none,
    ],
)
async def test_the_log_stays_while_a_store_is_open(what: Callable[[Path], Awaitable[None]], tmp_path: Path) -> None:
    """Whatever else this process does with the file, and whoever else comes and goes."""
    path = tmp_path / "record.db"
    async with SQLiteStore(path) as store:
        await store.append([MessageReceived(session_id="s")])
        await what(path)
        await store.append([MessageReceived(session_id="s")])  # so that it has looked at the file
        before = path.with_name("record.db-wal").stat().st_ino
        another_process_comes_and_goes(path)
        after = path.with_name("record.db-wal").stat().st_ino
        await store.append([MessageReceived(session_id="s")])

        assert after == before
        assert await store.last_seq("s") >= 3


@pytest.mark.anyio
async def test_nothing_of_a_file_is_kept_once_it_is_closed(tmp_path: Path) -> None:
    """One descriptor while there are connections, none afterwards."""
    path = tmp_path / "record.db"
    async with SQLiteStore(path) as store, SQLiteStore(path) as other:
        await store.append([MessageReceived(session_id="s")])
        assert await other.last_seq("s") == 1
        assert len(descriptors._kept) == 1

    assert descriptors._kept == {}


@pytest.mark.anyio
async def test_nothing_of_a_file_is_kept_by_an_opening_that_fails(tmp_path: Path) -> None:
    """What stands in the log is not what was committed, which is seen last."""
    path = tmp_path / "record.db"
    log = path.with_name("record.db-wal")
    async with SQLiteStore(path) as store:
        await store.append([MessageReceived(session_id="s")])
        (kept,) = descriptors._kept.values()
        before = kept.connections
        with log.open("r+b") as file:
            file.seek(log.stat().st_size - 4096 - 16)  # the salt of the last page
            file.write(bytes(8))
        with pytest.raises(StoreError, match="the log of store"):
            SQLiteStore(path)

        assert kept.connections == before

    assert descriptors._kept == {}
