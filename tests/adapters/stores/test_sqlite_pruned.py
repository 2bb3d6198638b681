"""Room that a pruned record took is given back, while other processes write to the file."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.adapters.stores import SQLiteStore
from proctor.policies.events import Event, MessageReceived, RunCompleted, RunStarted
from proctor.supervisor import StoreError, Supervisor, prune
from proctor.supervisor.ports.store import Store

PROCESS = Path(__file__).with_name("appending_process.py")
OLD = datetime.now(UTC) - timedelta(days=100)
MB = 1024 * 1024


async def fill(store: Store, name: str, size: int) -> None:
    """An old session of one run, of a given size in bytes."""
    ids: Any = {"run_id": f"r_{name}", "session_id": name, "at": OLD}
    some: list[Event] = [MessageReceived(content="x" * 100_000, **ids) for _ in range(size // 100_000)]
    await store.append([RunStarted(**ids), *some, RunCompleted(**ids)])


def on_disk(path: Path) -> int:
    return sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*") if not file.name.endswith("-shm"))


@pytest.mark.anyio
async def test_the_file_becomes_smaller_under_a_store_that_is_open(tmp_path: Path) -> None:
    """Both that prune and that only look on go on writing to it."""
    path = tmp_path / "record.db"
    async with SQLiteStore(path) as store, SQLiteStore(path) as other, Supervisor(other):
        await fill(store, "old", 20 * MB)
        await other.append([MessageReceived(session_id="s")])
        before = on_disk(path)
        report = await prune(store, older_than=timedelta(days=90))
        after = on_disk(path)
        for one in (store, other):
            await one.append([MessageReceived(session_id="s", content="more")])

        assert report.sessions == 1
        assert before > 20 * MB
        assert after < MB
        assert await store.last_seq("s") == 3


@pytest.mark.anyio
async def test_a_file_that_somebody_cuts_short_is_still_known(tmp_path: Path) -> None:
    """Having become smaller by itself before."""
    path = tmp_path / "record.db"
    async with SQLiteStore(path) as store:
        await fill(store, "old", 2 * MB)
        await prune(store, older_than=timedelta(days=90))
        await store.append([MessageReceived(session_id="s", content="x" * 100_000)])
        await store.compact()
        await store.append([MessageReceived(session_id="s")])
        size = path.stat().st_size
        with path.open("r+b") as file:
            file.truncate(size // 2)
        with pytest.raises(StoreError) as refused:
            await store.append([MessageReceived(session_id="s")])

    assert refused.value.kind in ("truncated", "corrupt")


def test_it_is_pruned_while_processes_write(tmp_path: Path) -> None:
    """All they were told is stored is there, without a gap."""
    path = tmp_path / "record.db"

    async def made() -> None:
        async with SQLiteStore(path) as store:
            for n in range(10):
                await fill(store, f"old{n}", 2 * MB)

    async def pruned() -> int:
        async with SQLiteStore(path, busy_timeout_s=60) as store:
            return (await prune(store, older_than=timedelta(days=90))).sessions

    async def stored() -> dict[tuple[str, int], str]:
        async with SQLiteStore(path) as store:
            return {
                (name, event.seq): event.event_id for name in ("s0", "s1", "s2") async for event in store.read(name)
            }

    anyio.run(made)
    writers = [
        subprocess.Popen(
            [sys.executable, str(PROCESS), str(path), f"p{n}", "20", backend], stdout=subprocess.PIPE, text=True
        )
        for n, backend in enumerate(("asyncio", "trio"))
    ]
    sessions = anyio.run(pruned)
    outputs = [writer.communicate()[0] for writer in writers]
    acks = {
        (name, int(seq)): event_id
        for output in outputs
        for _, name, seq, event_id in (line.split() for line in output.splitlines())
    }

    assert [writer.returncode for writer in writers] == [0, 0]
    assert sessions == 10
    assert anyio.run(stored) == acks
    assert on_disk(path) < 10 * MB
