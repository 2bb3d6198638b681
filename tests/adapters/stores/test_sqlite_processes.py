"""Several processes share one file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from proctor.adapters.stores import SQLiteStore
from proctor.supervisor.ports.stored_types import Cancel
from proctor.supervisor.testing.fakes import PATIENCE_S

PROCESS = Path(__file__).with_name("appending_process.py")
TASKS = 4
BATCHES = 30


async def read_all(path: Path) -> tuple[dict[tuple[str, int], str], set[str]]:
    """The event ids by session and seq, and the ids of the runs."""
    found: dict[tuple[str, int], str] = {}
    async with SQLiteStore(path) as store:
        for session_id in ("s0", "s1", "s2"):
            events = [event async for event in store.read(session_id)]
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
            found.update({(session_id, event.seq): event.event_id for event in events})
        return found, {run.run_id for run in await store.runs()}


def test_processes_that_append_at_once_lose_nothing(tmp_path: Path) -> None:
    """Four processes create the file and append to the same sessions: no gap, all that was acknowledged."""
    path = tmp_path / "record.db"
    processes = [
        subprocess.Popen(
            [sys.executable, str(PROCESS), str(path), f"p{n}", str(BATCHES), ("asyncio", "trio")[n % 2]],
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(4)
    ]
    outputs = [process.communicate()[0] for process in processes]
    acks = {
        (session_id, int(seq)): event_id
        for output in outputs
        for _, session_id, seq, event_id in (line.split() for line in output.splitlines())
    }
    stored, runs = anyio.run(read_all, path)

    assert [process.returncode for process in processes] == [0] * 4
    assert stored == acks
    assert len(set(stored.values())) == 4 * TASKS * sum(1 + n % 5 for n in range(BATCHES))
    assert runs == {f"p{n}.{task}" for n in range(4) for task in range(TASKS)}


@pytest.mark.anyio
async def test_an_order_from_another_process_wakes_who_waits(tmp_path: Path) -> None:
    """It is given by a process that knows no more than the file."""
    path = tmp_path / "record.db"
    code = (
        "import sys, anyio\n"
        "from proctor.adapters.stores import SQLiteStore\n"
        "from proctor.supervisor import Cancel\n"
        "async def main():\n"
        "    async with SQLiteStore(sys.argv[1]) as store:\n"
        "        await store.send_command(Cancel(scope='run', value='r', by='ana'))\n"
        "anyio.run(main)\n"
    )
    async with SQLiteStore(path) as store:
        with anyio.fail_after(PATIENCE_S):
            token = await store.wait(0, 0)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(anyio.run_process, [sys.executable, "-c", code, str(path)])
                while not await store.commands():
                    token = await store.wait(token, 3600)

        assert await store.commands() == [Cancel(scope="run", value="r", by="ana", number=1)]
