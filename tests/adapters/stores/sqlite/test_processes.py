"""Several processes on one file: what they append, follow and prune, and what a kill leaves."""

import os
import random
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from owning_processes import Process, process

from proctor.adapters.stores import SQLiteStore
from proctor.policies.events import Event, MessageReceived, RunCompleted, RunStarted
from proctor.supervisor import Store, StoreError, Supervisor, prune

PROCESS = Path(__file__).with_name("appending_process.py")
TASKS = 4
BATCHES = 30
SESSIONS = ("s0", "s1", "s2")
FOLLOWER = Path(__file__).with_name("following_process.py")
FOLLOWED_BATCHES = 20
EVENTS = 2 * 4 * sum(1 + n % 5 for n in range(FOLLOWED_BATCHES))
STEPS = 4
KILLS = 60


def writers(path: Path, many: int, batches: int) -> list[subprocess.Popen[str]]:
    """Processes that append this many batches, on asyncio and on trio."""
    return [
        subprocess.Popen(
            [sys.executable, str(PROCESS), str(path), f"p{n}", str(batches), ("asyncio", "trio")[n % 2]],
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(many)
    ]


def test_a_cursor_is_passed_from_process_to_process(tmp_path: Path) -> None:
    """Two processes write, and four follow in turn on asyncio and on trio, each from the previous one's cursor."""
    path = tmp_path / "record.db"
    anyio.run(SQLiteStore(path).aclose)
    writing = writers(path, 2, FOLLOWED_BATCHES)
    cursor, seen = "start", []
    for step in range(STEPS):
        command = [str(FOLLOWER), str(path), cursor, str(EVENTS // STEPS), ("asyncio", "trio")[step % 2]]
        output = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=120, check=True)
        *saw, last = output.stdout.splitlines()
        seen += [(session_id, int(seq)) for _, session_id, seq in map(str.split, saw)]
        cursor = last.split()[1]
    for writer in writing:
        writer.communicate()

    assert [writer.returncode for writer in writing] == [0, 0]
    assert len(set(seen)) == len(seen) == EVENTS
    for name in SESSIONS:
        order = [seq for session_id, seq in seen if session_id == name]
        assert order == list(range(1, len(order) + 1))


def kill_one(victims: Process, name: str, *, after_acks: int, spins: int = 0) -> list[tuple[str, int, str]]:
    """Start a process of this name, and kill it after some acknowledgements; returns all of them."""
    before = len(victims.lines)
    victims.go_on(name)
    pid = int(victims.until("pid").split()[1])
    for _ in range(after_acks):
        victims.until("ack")
    for _ in range(spins):
        pass
    os.kill(pid, signal.SIGKILL)
    victims.until("dead")
    acks = [line.split() for line in victims.lines[before:] if line.startswith("ack")]
    return [(session_id, int(seq), event_id) for _, session_id, seq, event_id in acks]


class Record:
    """The events read from a store so far, so that each check reads only new ones."""

    def __init__(self) -> None:
        self.ids: dict[str, list[str]] = {session_id: [] for session_id in SESSIONS}

    async def read_on(self, path: Path) -> None:
        async with SQLiteStore(path) as store:
            for session_id, ids in self.ids.items():
                new: list[Event] = [event async for event in store.read(session_id, after=len(ids))]
                assert [event.seq for event in new] == list(range(len(ids) + 1, len(ids) + len(new) + 1))
                ids += [event.event_id for event in new]
                assert await store.last_seq(session_id) == len(ids)

    def check(self, acks: list[tuple[str, int, str]]) -> None:
        for session_id, seq, event_id in acks:
            assert self.ids[session_id][seq - 1] == event_id


@pytest.mark.slow
def test_no_acknowledged_event_is_lost_when_the_process_is_killed(tmp_path: Path) -> None:
    """After each of many kills: every acknowledged event at its seq, no gap, no duplicate."""
    path = tmp_path / "record.db"
    dice = random.Random(20)
    record = Record()
    acknowledged: list[tuple[str, int, str]] = []
    with process(str(path), program=PROCESS) as victims:
        for n in range(KILLS):
            acks = kill_one(victims, f"n{n}", after_acks=dice.randrange(60), spins=dice.randrange(20_000))
            anyio.run(record.read_on, path)
            record.check(acks)
            acknowledged += acks
    fresh = Record()
    anyio.run(fresh.read_on, path)
    fresh.check(acknowledged)

    assert fresh.ids == record.ids
    assert all(len(ids) == len(set(ids)) for ids in fresh.ids.values())
    assert len(acknowledged) > KILLS


def test_a_store_whose_creation_was_killed_can_be_opened(tmp_path: Path) -> None:
    """The next process to open a partly created file completes it."""
    dice = random.Random(21)
    path = tmp_path / "record.db"
    with process(str(path), program=PROCESS) as victims:
        for n in range(25):
            acks = kill_one(victims, f"n{n}", after_acks=0, spins=dice.randrange(120_000))
            record = Record()
            anyio.run(record.read_on, path)
            record.check(acks)
            for leftover in tmp_path.iterdir():
                leftover.unlink()


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
async def test_the_file_shrinks_under_an_open_store(tmp_path: Path) -> None:
    """Both the pruning process and a reading one continue to write to it."""
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
async def test_a_file_that_is_truncated_is_still_recognised(tmp_path: Path) -> None:
    """After it shrank by itself before."""
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
        with pytest.raises(StoreError) as raised:
            await store.append([MessageReceived(session_id="s")])

    assert raised.value.kind in ("truncated", "corrupt")


def test_concurrent_appends_during_a_prune_lose_nothing(tmp_path: Path) -> None:
    """Four processes append to the same sessions: all acknowledged events are there, without a gap, and the file is
    small.
    """
    path = tmp_path / "record.db"

    async def made() -> None:
        async with SQLiteStore(path) as store:
            for n in range(10):
                await fill(store, f"old{n}", 2 * MB)

    async def pruned() -> int:
        async with SQLiteStore(path, busy_timeout_s=60) as store:
            return (await prune(store, older_than=timedelta(days=90))).sessions

    async def stored() -> tuple[dict[tuple[str, int], str], set[str]]:
        async with SQLiteStore(path) as store:
            events = [(name, event) for name in SESSIONS async for event in store.read(name)]
            return {(name, event.seq): event.event_id for name, event in events}, {e.run_id for _, e in events}

    anyio.run(made)
    writing = writers(path, 4, BATCHES)
    sessions = anyio.run(pruned)
    lines = [line.split() for writer in writing for line in writer.communicate()[0].splitlines()]
    found, runs = anyio.run(stored)

    assert [writer.returncode for writer in writing] == [0] * 4
    assert sessions == 10
    assert found == {(name, int(seq)): event_id for _, name, seq, event_id in lines}
    assert len(found) == 4 * TASKS * sum(1 + n % 5 for n in range(BATCHES))
    assert runs == {f"p{n}.{task}" for n in range(4) for task in range(TASKS)}
    for name in SESSIONS:
        order = [seq for session_id, seq in found if session_id == name]
        assert order == list(range(1, len(order) + 1))
    assert on_disk(path) < 10 * MB
