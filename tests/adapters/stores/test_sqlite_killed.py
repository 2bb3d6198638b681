"""A process that is killed loses nothing that its store acknowledged."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from proctor.adapters.stores import SQLiteStore
from proctor.policies.events import Event

PROCESS = Path(__file__).with_name("appending_process.py")
SESSIONS = ("s0", "s1", "s2")
KILLS = 110


class Victims:
    """Processes that append to one store, one after another."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._orders = process.stdin
        self._lines = process.stdout

    def kill_one(self, name: str, *, after_acks: int, spins: int = 0) -> list[tuple[str, int, str]]:
        """Start one, kill it after some acknowledgements; returns all that it had said."""
        self._orders.write(f"{name}\n")
        self._orders.flush()
        word, pid = self._lines.readline().split()
        assert word == "pid"
        acks: list[tuple[str, int, str]] = []
        while len(acks) < after_acks:
            acks.append(self._ack(self._lines.readline()))
        for _ in range(spins):
            pass
        os.kill(int(pid), signal.SIGKILL)
        while (line := self._lines.readline()) != "dead\n":
            acks.append(self._ack(line))
        return acks

    @staticmethod
    def _ack(line: str) -> tuple[str, int, str]:
        word, session_id, seq, event_id = line.split()
        assert word == "ack"
        return session_id, int(seq), event_id


@contextmanager
def victims(path: Path) -> Iterator[Victims]:
    command = [sys.executable, str(PROCESS), str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Victims(process)


class Record:
    """What was read of a store so far, so that each check reads only what is new."""

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
def test_nothing_acknowledged_is_lost_when_the_process_is_killed(tmp_path: Path) -> None:
    """After each of many kills: every acknowledged event at its seq, no gap, nothing twice."""
    path = tmp_path / "record.db"
    dice = random.Random(20)
    record = Record()
    acknowledged: list[tuple[str, int, str]] = []
    with victims(path) as killed:
        for n in range(KILLS):
            acks = killed.kill_one(f"n{n}", after_acks=dice.randrange(60), spins=dice.randrange(20_000))
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
    """A file half made is finished by whoever opens it next."""
    dice = random.Random(21)
    path = tmp_path / "record.db"
    with victims(path) as killed:
        for n in range(40):
            acks = killed.kill_one(f"n{n}", after_acks=0, spins=dice.randrange(120_000))
            record = Record()
            anyio.run(record.read_on, path)
            record.check(acks)
            for leftover in tmp_path.iterdir():
                leftover.unlink()
