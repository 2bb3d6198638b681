"""Owners in processes of their own: raced, stopped and killed.

`PROCTOR_KILLS=300` kills so many, in place of a few; see docs/long-runs.md.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue

import anyio
import pytest

from proctor.adapters.stores import SQLiteStore
from proctor.adapters.stores.audit.auditing import audited
from proctor.policies.stream.events import TERMINAL, Event, RunCompleted, RunFailed, ToolCallStarted
from proctor.supervisor import RunInfo, all_runs, create_run
from proctor.supervisor.control.reaping import reap

PROGRAM = Path(__file__).parent / "owning_process.py"
KILLS = int(os.environ.get("PROCTOR_KILLS", "6"))
RACES = 5
SESSIONS = 6


class Process:
    """A process whose lines can be waited for."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._fresh: Queue[str | None] = Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            self._fresh.put(line.rstrip())
        self._fresh.put(None)

    def until(self, start: str) -> str:
        """The next line that begins so."""
        while (line := self._fresh.get(timeout=60)) is not None:
            if line.startswith(start):
                return line
        raise AssertionError(f"it ended before it said `{start}`: {self.lines}")

    def rest(self) -> list[str]:
        """All lines, once it has ended."""
        while self._fresh.get(timeout=60) is not None:
            pass
        return self.lines

    def go_on(self, line: str = "") -> None:
        """Give it a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()


@contextmanager
def process(path: Path, *arguments: str) -> Iterator[Process]:
    command = [sys.executable, str(PROGRAM), str(path), *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as started:
        try:
            yield Process(started)
        finally:
            started.kill()


async def recorded(store: SQLiteStore, session_id: str) -> list[Event]:
    return [event async for event in store.read(session_id)]


def test_a_created_run_given_to_two_processes_runs_once(tmp_path: Path) -> None:
    """Again and again: one executes it, the other is told so."""
    path = tmp_path / "record.db"

    async def created(n: int) -> None:
        async with SQLiteStore(path) as store:
            await create_run(store, "go", run_id=f"r{n}", session_id=f"s{n}")

    async def ends() -> list[list[type[Event]]]:
        async with SQLiteStore(path) as store:
            found = [await recorded(store, f"s{n}") for n in range(RACES)]
        return [[type(event) for event in events if isinstance(event, TERMINAL)] for events in found]

    for n in range(RACES):
        anyio.run(created, n)
        with process(path, "execute", f"r{n}") as one, process(path, "execute", f"r{n}") as other:
            for each in (one, other):
                each.until("ready")
            for each in (one, other):
                each.go_on()
            lines = one.rest() + other.rest()

        assert Counter(line for line in lines if line.startswith("ran ")) == {f"ran r{n} c{k}": 1 for k in range(3)}
        assert sorted(line.split()[0] for line in lines if not line.startswith("r")) == ["ended"]
        (refusal,) = [line for line in lines if line.startswith("refused")]
        assert "bad_usage" in refusal

    assert anyio.run(ends) == [[RunCompleted]] * RACES


def test_an_owner_that_was_stopped_comes_back_fenced(tmp_path: Path) -> None:
    """Its lease was over and its run ended meanwhile: what its agent asks for then does not run."""
    path = tmp_path / "record.db"

    async def ended_by_another() -> list[Event]:
        async with SQLiteStore(path) as store:
            token = 0
            while (run := await store.run("held")) is None or run.status != "lost":
                token = await store.wait(token, 0.1)
            assert [run.run_id for run in await reap(store)] == ["held"]
            return await recorded(store, "s")

    async def in_the_end() -> list[Event]:
        async with SQLiteStore(path) as store:
            return await recorded(store, "s")

    with process(path, "hold", "1") as owner:
        owner.until("ran held c0")
        owner.process.send_signal(signal.SIGSTOP)
        before = anyio.run(ended_by_another)
        owner.process.send_signal(signal.SIGCONT)
        owner.go_on()
        said = owner.rest()
    after = anyio.run(in_the_end)

    assert [line for line in said if line.startswith("ran")] == ["ran held c0"]
    assert said[-1].startswith("refused fenced")
    assert after == before
    assert isinstance(after[-1], RunFailed)
    assert after[-1].error["code"] == "owner_lost"


def test_an_owner_that_lives_is_left_alone(tmp_path: Path) -> None:
    """Nobody takes from it what it goes on with, however long it takes."""
    path = tmp_path / "record.db"

    async def looked_at() -> tuple[str, list[RunInfo]]:
        async with SQLiteStore(path) as store:
            await anyio.sleep(1.5)  # three leases, on the clock of real processes
            run = await store.run("held")
            assert run is not None
            return run.status, await reap(store)

    with process(path, "hold", "0.5") as owner:
        owner.until("ran held c0")
        found = anyio.run(looked_at)
        for _ in range(2):
            owner.go_on()
        said = owner.rest()

    assert found == ("running", [])
    assert said[-1] == "ended completed"


@pytest.mark.parametrize("kills", [KILLS])
def test_killing_one_of_three_owners_at_random_moments_loses_nothing(tmp_path: Path, kills: int) -> None:
    """No acknowledged event is lost, there is no gap, every run has one end, and no call ran twice or unrecorded."""
    path = tmp_path / "record.db"
    created = 0

    async def more_runs() -> None:
        nonlocal created
        async with SQLiteStore(path, busy_timeout_s=60) as store:
            for _ in range(8):
                session_id = f"s{random.randrange(SESSIONS)}"
                await create_run(store, "go", run_id=f"r{created}", session_id=session_id)
                created += 1

    anyio.run(more_runs)
    with process(path, "work") as one, process(path, "work") as two, process(path, "work") as three:
        workers = [one, two, three]
        pids: list[int] = []
        for worker in workers:
            worker.go_on("start")
            pids.append(int(worker.until("pid").split()[1]))
        for n in range(kills):
            victim = n % 3
            anyio.run(more_runs)
            anyio.run(anyio.sleep, random.uniform(0, 0.15))  # real processes, killed at any moment
            os.kill(pids[victim], signal.SIGKILL)
            workers[victim].until("dead")
            workers[victim].go_on("start")
            pids[victim] = int(workers[victim].until("pid").split()[1])
        for worker, pid in zip(workers, pids, strict=True):
            assert worker.process.stdin is not None
            worker.process.stdin.close()
            os.kill(pid, signal.SIGKILL)
        lines = [line for worker in workers for line in worker.rest()]

    anyio.run(_check_record, path, lines)
    assert audited(path).findings == ()


async def _check_record(path: Path, lines: list[str]) -> None:
    async with SQLiteStore(path) as store:
        lost = await reap(store)
        again = await reap(store)
        sessions = [await recorded(store, f"s{n}") for n in range(SESSIONS)]
        runs = [run async for run in all_runs(store)]
    events = [event for session in sessions for event in session]
    places = {f"ack {event.session_id} {event.seq} {event.run_id}" for event in events}
    started = {(event.run_id, event.tool_call_id) for event in events if isinstance(event, ToolCallStarted)}
    ran = Counter(tuple(line.split()[1:]) for line in lines if line.startswith("ran "))
    ended = Counter(event.run_id for event in events if isinstance(event, TERMINAL))
    begun = {run.run_id for run in runs if run.status != "created"}

    assert {line for line in lines if line.startswith("ack ")} <= places
    assert [[event.seq for event in session] for session in sessions] == [
        list(range(1, len(session) + 1)) for session in sessions
    ]
    twice = {run_id for (run_id, _), times in ran.items() if times > 1}
    assert [(event.run_id, event.seq, event.type) for event in events if event.run_id in twice] == []
    assert set(ran) <= started
    assert ended == dict.fromkeys(begun, 1)
    assert {run.status for run in runs} <= {"completed", "failed", "created"}
    assert (again, {run.status for run in lost} <= {"lost"}) == ([], True)
