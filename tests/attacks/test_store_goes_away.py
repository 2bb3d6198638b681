"""A store that vanishes under a run: no call is allowed, the run ends, and its error gives the reason."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from stored_rows import stored_rows

from proctor.adapters.stores import SQLiteStore
from proctor.adapters.stores.sqlite import file as sqlite_file
from proctor.adapters.stores.sqlite.file import IntactFile, open_for_writing
from proctor.policies import Limits, Policy
from proctor.policies.events import MessageReceived, ToolCallStarted
from proctor.supervisor import StoreError, Supervisor, run_once
from proctor.supervisor.testing.fakes import PATIENCE_S, Ask, FakeAdapter, Pause

pytestmark = pytest.mark.anyio
POLICY = Policy(name="open", limits=Limits(max_tool_calls=1000))


def log_of(path: Path) -> Path:
    return Path(f"{path}-wal")


def index_of(path: Path) -> Path:
    return Path(f"{path}-shm")


def remove_with_its_log(path: Path) -> None:
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()


def replace_by_a_copy(path: Path) -> None:
    copy = path.with_name("copy")
    shutil.copy(path, copy)
    os.replace(copy, path)


def replace_by_nothing(path: Path) -> None:
    empty = path.with_name("empty")
    empty.touch()
    os.replace(empty, path)


def cut(file: Path, left: int) -> None:
    """To this many bytes, or by this many."""
    os.truncate(file, left if left >= 0 else file.stat().st_size + left)


def cut_in_half(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def empty_the_log(path: Path) -> None:
    size = log_of(path).stat().st_size
    cut(log_of(path), 0)
    cut(log_of(path), size)


WAYS: dict[str, Callable[[Path], object]] = {
    "remove": Path.unlink,
    "remove with its log": remove_with_its_log,
    "remove the log": lambda path: log_of(path).unlink(),
    "remove the index": lambda path: index_of(path).unlink(),
    "replace the log": lambda path: replace_by_a_copy(log_of(path)),
    "replace the index": lambda path: replace_by_a_copy(index_of(path)),
    "cut the log to nothing": lambda path: cut(log_of(path), 0),
    "cut the log to its head": lambda path: cut(log_of(path), 32),
    "cut the log short": lambda path: cut_in_half(log_of(path)),
    "cut the last page off the log": lambda path: cut(log_of(path), -1),
    "empty the log": empty_the_log,
    "cut the index to nothing": lambda path: cut(index_of(path), 0),
    "cut the index short": lambda path: cut(index_of(path), 4096),
    "remove the folder": lambda path: shutil.rmtree(path.parent),
    "move away": lambda path: path.rename(path.with_name("elsewhere")),
    "replace by a copy": replace_by_a_copy,
    "replace by nothing": replace_by_nothing,
    "cut to nothing": lambda path: cut(path, 0),
    "cut short": cut_in_half,
}
"""How a store vanishes."""
CUT_INDEX = ("cut the index to nothing", "cut the index short")
"""If the index is cut during a commit, the kernel ends the process with SIGBUS, which can't be prevented."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "kept"
    folder.mkdir()
    return folder / "store.db"


@pytest.mark.parametrize("way", WAYS)
async def test_no_call_is_allowed_and_the_run_ends(way: str, path: Path) -> None:
    """The agent itself removes the store, between two of its calls."""

    async def tamper() -> None:
        WAYS[way](path)

    adapter = FakeAdapter([Ask(name="bash", meanwhile=tamper), Ask(name="read"), Pause()])
    async with SQLiteStore(path) as store:
        with pytest.raises(StoreError) as raised:
            await run_once(adapter, "go", policies=[POLICY], store=store)

    assert [call.name for call in adapter.ran] == ["bash"]
    assert raised.value.kind in ("gone", "truncated", "corrupt", "unwritable", "not_a_store")
    assert str(path) in str(raised.value)
    assert raised.value.partial.status == "failed"


@pytest.mark.parametrize("way", [way for way in WAYS if way not in CUT_INDEX])
async def test_an_agent_without_a_gate_is_cancelled(way: str, path: Path) -> None:
    """Its next event can't be recorded."""

    async def tamper() -> None:
        token = 0  # once its start is stored, no write is in progress
        while not [event async for event in store.read("s") if isinstance(event, ToolCallStarted)]:
            token = await store.wait(token, PATIENCE_S)
        WAYS[way](path)

    adapter = FakeAdapter([Ask(name="bash", meanwhile=tamper), MessageReceived(content="x"), Pause()], gate="none")
    async with SQLiteStore(path) as store:
        with pytest.raises(StoreError):
            await run_once(adapter, "go", policies=[POLICY], store=store, session_id="s")

    assert adapter.steps_taken == ["interrupt"]


async def test_every_run_on_the_store_ends_and_none_starts(path: Path) -> None:
    """The next call of each is denied, and no new run starts."""
    go_on = anyio.Event()
    adapters = [FakeAdapter([Ask(name="read", first=go_on.wait), Pause()]) for _ in range(3)]
    errors = []
    async with SQLiteStore(path) as store, Supervisor(store) as supervisor:
        handles = [await supervisor.start(adapter, "go", policies=[POLICY]) for adapter in adapters]
        await anyio.wait_all_tasks_blocked()
        WAYS["remove"](path)
        go_on.set()
        for handle in handles:
            try:
                await handle.wait()
            except StoreError as error:
                errors.append(error.kind)
        with pytest.raises(StoreError, match="was removed"):
            await supervisor.start(FakeAdapter(), "go", policies=[POLICY])

    assert errors == ["gone"] * 3
    assert [adapter.ran for adapter in adapters] == [[]] * 3


CUT = """
import os, sys, anyio
from proctor.adapters.stores import SQLiteStore
from proctor.adapters.stores.sqlite.file import IntactFile, open_for_writing
from proctor.policies.events import MessageReceived, ToolCallStarted
from proctor.supervisor import StoreError

async def main(path, then, size):
    async with SQLiteStore(path) as store:
        for n in range(0, 300, 10):
            await store.append([MessageReceived(session_id="s", content=f"{m}" * 5000) for m in range(n, n + 10)])
        async for _ in store.read("s"):
            pass
        os.truncate(f"{path}-shm", size)
        try:
            if then == "append":
                await store.append([MessageReceived(session_id="s", content="x")])
            elif then == "read":
                async for _ in store.read("s"):
                    pass
        except StoreError as error:
            print(error.kind)

for size in sys.argv[3:]:
    anyio.run(main, f"{sys.argv[1]}/{size}.db", sys.argv[2], int(size))
"""
"""A process that opens stores in the folder given first; their index is cut to a size."""
SIZES = ("0", "100", "4096")
COUNT = "SELECT count(*) FROM events"


@pytest.mark.parametrize("then", ["append", "read", "close"])
def test_a_truncated_index_ends_no_process_and_loses_nothing(tmp_path: Path, then: str) -> None:
    """The index is mapped memory: reading beyond the end of its file raises SIGBUS."""
    child = subprocess.run([sys.executable, "-c", CUT, tmp_path, then, *SIZES], capture_output=True, text=True)
    stored = [stored_rows(tmp_path / f"{size}.db", COUNT)[0][0] for size in SIZES]

    assert (child.returncode, child.stdout.split()) == (0, [] if then == "close" else ["truncated"] * len(SIZES))
    assert stored == [300] * len(SIZES)


async def test_a_store_that_grows_and_is_checkpointed_by_others_is_still_there(path: Path) -> None:
    """These are no attacks: another process's checkpoint moves the log into the file."""
    async with SQLiteStore(path) as store, SQLiteStore(path) as other:
        for n in range(3):
            await run_once(FakeAdapter([Ask(name="read")]), f"go {n}", policies=[POLICY], store=other)
            await run_once(FakeAdapter([Ask(name="read")]), f"go {n}", policies=[POLICY], store=store)
        await other.aclose()
        result = await run_once(FakeAdapter([Ask(name="read")]), "on", policies=[POLICY], store=store)

    assert result.status == "completed"


@pytest.mark.parametrize("bytes_cut", [1, 100, 4000, 4120, 5000])
def test_a_log_truncated_during_a_commit_is_noticed_after_it(path: Path, bytes_cut: int) -> None:
    """SQLite writes on after the hole, so the log's length is right and the earlier commits are damaged."""
    with closing(open_for_writing(path, synchronous="FULL", busy_timeout_s=1.0, max_bytes=None)) as connection:
        connection.execute("CREATE TABLE t (x)")
        file = IntactFile(path)
        for n in range(3):  # nothing is cut
            connection.execute("INSERT INTO t VALUES (?)", (n,))
            file.check()
        log = Path(f"{path}-wal")
        os.truncate(log, log.stat().st_size - bytes_cut)
        connection.execute("INSERT INTO t VALUES (4)")
        with pytest.raises(StoreError, match=r"the log of store .* was cut short"):
            file.check()


@pytest.mark.parametrize("then", ["TRUNCATE", "RESTART"])
def test_a_log_that_another_process_resets_between_two_reads_is_intact(
    path: Path, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """The index was read before, the log after the other's checkpoint, with or without its next commit."""
    with closing(open_for_writing(path, synchronous="FULL", busy_timeout_s=1.0, max_bytes=None)) as connection:
        connection.execute("CREATE TABLE t (x)")
        file = IntactFile(path)
        read = [sqlite_file.read_index(path)]
        connection.execute(f"PRAGMA wal_checkpoint({then})")
        if then == "RESTART":
            connection.execute("INSERT INTO t VALUES (1)")
        real = sqlite_file.read_index
        monkeypatch.setattr(sqlite_file, "read_index", lambda path: read.pop() if read else real(path))
        file.check()

        assert not read
