"""A file that is no store is rejected and unchanged; a store of an older version is upgraded."""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from plain_user import MISSING, PLAIN, WHY
from stored_rows import stored_rows

from proctor.adapters.stores import SQLiteStore
from proctor.adapters.stores.tables import schema
from proctor.policies.events import Event, MessageReceived, RunStarted
from proctor.supervisor import Cancel, StoreError, UsageError


async def write_some(path: Path) -> list[Event]:
    async with SQLiteStore(path) as store:
        batch: list[Event] = [MessageReceived(session_id="s", content="x" * 500) for _ in range(200)]
        return await store.append([RunStarted(session_id="s", run_id="r"), *batch])


def changed(*statements: str, ours: bool = False, log: bool = False) -> Callable[[Path], None]:
    """A database after these changes; with `log`, its log has content that the file lacks."""

    def make(path: Path) -> None:
        other = path.with_name("other.db")
        if ours:
            anyio.run(write_some, other)
        connection = sqlite3.connect(other, isolation_level=None)
        for statement in statements:
            connection.execute(statement)
        if not log:
            connection.close()
        for file in path.parent.glob("other.db*"):
            if not file.name.endswith("-shm"):
                shutil.copy(file, path.with_name(file.name.replace("other", "record")))
        connection.close()
        for leftover in path.parent.glob("other.db*"):
            leftover.unlink()

    return make


def left_its_log(make_store: Callable[[Path], None], *, empty: bool) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        make_store(path)
        path.unlink()
        if empty:
            path.touch()

    return make


def cut_to(size: Callable[[int], int]) -> Callable[[Path], None]:
    def cut(path: Path) -> None:
        anyio.run(write_some, path)
        os.truncate(path, size(path.stat().st_size))

    return cut


def overwritten(start: int, size: int) -> Callable[[Path], None]:
    def overwrite(path: Path) -> None:
        anyio.run(write_some, path)
        with path.open("r+b") as file:
            file.seek(start)
            file.write(b"\xa5" * size)

    return overwrite


FOREIGN = "CREATE TABLE events (a)"
NEWER = f"PRAGMA user_version = {schema.schema_version() + 1}"
LOGGED = changed(NEWER, ours=True, log=True)
REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "text": (lambda path: path.write_text("hello\n"), "not_a_store"),
    "one byte": (lambda path: path.write_bytes(b"S"), "truncated"),
    "zeros": (lambda path: path.write_bytes(bytes(8192)), "not_a_store"),
    "a foreign database": (changed(FOREIGN), "not_a_store"),
    "a foreign database with its log": (changed("PRAGMA journal_mode = WAL", FOREIGN, log=True), "not_a_store"),
    "marked by another program": (changed(FOREIGN, "PRAGMA application_id = 1"), "not_a_store"),
    "a newer version": (changed(NEWER, ours=True), "newer_schema"),
    "a newer version with its log": (LOGGED, "newer_schema"),
    "from before the first release": (
        changed(f"PRAGMA user_version = {schema.FIRST_VERSION - 1}", ours=True),
        "older_schema",
    ),
    "gone without its log": (left_its_log(LOGGED, empty=False), "gone"),
    "emptied without its log": (left_its_log(LOGGED, empty=True), "gone"),
    "cut within the header": (cut_to(lambda size: 60), "truncated"),
    "cut within the first page": (cut_to(lambda size: 700), "truncated"),
    "cut in the middle": (cut_to(lambda size: size // 2), "truncated"),
    "cut by a byte": (cut_to(lambda size: size - 1), "truncated"),
    "a damaged beginning": (overwritten(0, 40), "not_a_store"),
    "a damaged first page": (overwritten(100, 2000), "corrupt"),
    "a damaged page": (overwritten(6 * 4096, 4096), "corrupt"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_file_that_is_not_a_store_is_rejected_and_unchanged(tmp_path: Path, kind: str) -> None:
    """One error that names the file, and every byte is as before."""
    make, expected = REFUSED[kind]
    path = tmp_path / "record.db"
    make(path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(StoreError) as caught:
        SQLiteStore(path)
    after = {file.name: file.read_bytes() for file in tmp_path.iterdir() if not file.name.endswith("-shm")}

    assert caught.value.kind == expected
    assert str(path) in str(caught.value)
    assert {name: data for name, data in after.items() if data or name in before} == before


def test_an_empty_file_is_a_new_store(tmp_path: Path) -> None:
    """Such as one from `mktemp`."""
    path = tmp_path / "record.db"
    path.touch()

    assert anyio.run(write_some, path)[-1].seq == 201


ROUNDS = 12
OPENS = """
import sys
from proctor.adapters.stores import SQLiteStore
from proctor.supervisor.errors import StoreError
for line in sys.stdin:
    try:
        kept = SQLiteStore(f"{sys.argv[1]}/{line.strip()}.db")
        print("opened", flush=True)
    except StoreError as error:
        print(error, flush=True)
"""


def test_a_store_opened_concurrently_is_created_once(tmp_path: Path) -> None:
    """No process finds it partly created and takes it for another program's database."""
    command, pipe = [sys.executable, "-c", OPENS, str(tmp_path)], subprocess.PIPE
    with ExitStack() as left:
        four = [left.enter_context(subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)) for _ in range(4)]
        lines = []
        for number in range(ROUNDS):
            for process in four:
                print(number, file=process.stdin, flush=True)
            lines += [process.stdout.readline() for process in four if process.stdout is not None]

    assert set(lines) == {"opened\n"}


@pytest.mark.parametrize("place", ["missing/record.db", "file/record.db", "."])
def test_an_unusable_path_is_rejected(tmp_path: Path, place: str) -> None:
    """A missing directory, a file instead of one, a directory instead of a file: nothing is created."""
    (tmp_path / "file").touch()
    with pytest.raises(StoreError) as caught:
        SQLiteStore(tmp_path / place)

    assert caught.value.kind == "unwritable"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(MISSING, reason=WHY)
@pytest.mark.parametrize("existing", [True, False])
def test_an_unwritable_path_is_rejected(existing: bool, tmp_path: Path) -> None:
    """A read-only file in a read-only directory, or no file in one."""
    path = tmp_path / "record.db"
    if existing:
        anyio.run(write_some, path)
        path.chmod(0o444)
    tmp_path.chmod(0o555)
    code = (
        "import sys\n"
        "from proctor.adapters.stores import SQLiteStore\n"
        "from proctor.supervisor.errors import StoreError\n"
        "try: SQLiteStore(sys.argv[1])\n"
        "except StoreError as error: print(error.kind, error)\n"
    )
    command = [*PLAIN, sys.executable, "-c", code, str(path)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    tmp_path.chmod(0o755)

    assert output.startswith("unwritable ")
    assert str(path) in output


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_an_older_store_is_upgraded(tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its contents are kept, later events work, and the next to open it finds it upgraded."""
    path = tmp_path / "record.db"
    old = anyio.run(write_some, path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
    steps = ("ALTER TABLE runs ADD COLUMN colour TEXT",), ("DROP INDEX runs_by_status",)
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, *steps))

    async def use() -> None:
        async with SQLiteStore(path) as store, SQLiteStore(path):
            assert [event async for event in store.read("s")] == old
            assert (await store.append([MessageReceived(session_id="s")]))[0].seq == len(old) + 1
            assert await store.send_command(Cancel(scope="all")) == 1

    anyio.run(use)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (schema.schema_version(),)
        assert connection.execute("SELECT colour FROM runs").fetchall() == [(None,)]


def test_a_process_of_an_older_version_writes_nothing_to_a_store_upgraded_meanwhile(tmp_path: Path) -> None:
    """A newer process has opened it."""
    path = tmp_path / "record.db"

    async def use() -> None:
        async with SQLiteStore(path) as store:
            await store.append([MessageReceived(session_id="s")])
            stored_rows(path, NEWER)
            for write in (store.append([MessageReceived(session_id="s")]), store.send_command(Cancel(scope="all"))):
                with pytest.raises(StoreError, match="upgrade proctor") as caught:
                    await write
                assert caught.value.kind == "newer_schema"
            assert await store.last_seq("s") == 1

    anyio.run(use)


@pytest.mark.parametrize("setting", ["FULL", "extra", "NORMAL", "OFF"])
def test_a_closed_store_is_one_file_at_any_level_of_durability(tmp_path: Path, setting: str) -> None:
    """SQLite's own four words, in either case. A copy of the file is complete."""

    async def use() -> None:
        async with SQLiteStore(tmp_path / "record.db", synchronous=setting) as store:
            assert (await store.append([MessageReceived(session_id="s")]))[0].seq == 1
            assert await store.last_seq("s") == 1

    anyio.run(use)

    assert [file.name for file in tmp_path.iterdir()] == ["record.db"]


def test_an_invalid_argument_is_rejected(tmp_path: Path) -> None:
    """Before anything is created."""
    with pytest.raises(UsageError, match="`synchronous` is one of FULL"):
        SQLiteStore(tmp_path / "record.db", synchronous="SOMETIMES")
    with pytest.raises(UsageError, match="use MemoryStore"):
        SQLiteStore(":memory:")
    with pytest.raises(UsageError, match="not a path"):
        SQLiteStore(None)  # type: ignore[arg-type]

    assert list(tmp_path.iterdir()) == []


def test_a_connection_that_is_returned_while_the_store_closes_is_closed(tmp_path: Path) -> None:
    """The pool is closed between the check and the return. What stayed open would keep the log beside the file."""

    async def use() -> None:
        store = SQLiteStore(tmp_path / "record.db")
        await store.append([MessageReceived(session_id="s")])

        class Idle(list[Any]):
            def append(self, connection: Any, /) -> None:
                store._readers.close()
                super().append(connection)

        store._readers._idle = Idle()
        assert await store.last_seq("s") == 1
        await store._writer.aclose()  # the other half of closing the store

    anyio.run(use)

    assert [file.name for file in tmp_path.iterdir()] == ["record.db"]
