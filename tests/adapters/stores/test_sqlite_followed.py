"""Processes that follow a file others write to: every event once, whoever goes on from the cursor."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import anyio

from proctor.adapters.stores import SQLiteStore

WRITER = Path(__file__).with_name("appending_process.py")
FOLLOWER = Path(__file__).with_name("following_process.py")
BATCHES = 20
EVENTS = 2 * 4 * sum(1 + n % 5 for n in range(BATCHES))
STEPS = 4


async def _made(path: Path) -> None:
    async with SQLiteStore(path):
        pass


def test_a_cursor_is_taken_from_process_to_process(tmp_path: Path) -> None:
    """Two processes write, four follow in turn on asyncio and on trio, each from where the one before was."""
    path = tmp_path / "record.db"
    anyio.run(_made, path)
    writers = [
        subprocess.Popen(
            [sys.executable, str(WRITER), str(path), f"p{n}", str(BATCHES), backend], stdout=subprocess.DEVNULL
        )
        for n, backend in enumerate(("asyncio", "trio"))
    ]
    cursor, seen = "start", []
    for step in range(STEPS):
        command = [str(FOLLOWER), str(path), cursor, str(EVENTS // STEPS), ("asyncio", "trio")[step % 2]]
        output = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=120, check=True)
        *saw, last = output.stdout.splitlines()
        seen += [(session_id, int(seq)) for _, session_id, seq in map(str.split, saw)]
        cursor = last.split()[1]

    assert [writer.wait(60) for writer in writers] == [0, 0]
    assert len(set(seen)) == len(seen) == EVENTS
    for name in ("s0", "s1", "s2"):
        order = [seq for session_id, seq in seen if session_id == name]
        assert order == list(range(1, len(order) + 1))
