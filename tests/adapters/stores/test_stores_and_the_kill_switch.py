"""The kill switch over processes that share a store."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import anyio
import pytest

from proctor.adapters.stores import SQLiteStore
from proctor.supervisor import KillOutcome, KillSwitch, all_runs
from proctor.supervisor.testing.fakes import PATIENCE_S

MANY = Path(__file__).parents[2] / "supervisor" / "many_runs.py"


class Process:
    """Runs that go on in a process of their own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def next_line(self) -> str:
        """Its next line."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def starts(self) -> str:
        """Have it start a run: `started`, or the code of the error."""
        assert self._process.stdin is not None
        self._process.stdin.write("one more\n")
        self._process.stdin.flush()
        return self.next_line()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait()


@contextmanager
def started(store: Path, count: int, **env: str) -> Iterator[Process]:
    """A process with a given number of runs; on leaving the block, it has ended."""
    command = [sys.executable, str(MANY), str(store), str(count)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env={**os.environ, **env}) as process:
        try:
            yield Process(process)
        finally:
            if process.stdin is not None:
                process.stdin.close()
            process.wait(PATIENCE_S)


async def killed(store: Path) -> list[KillOutcome]:
    async with SQLiteStore(store) as opened:
        return await KillSwitch(opened).kill(by="ana", everything=True, block_starts=True, wait_s=PATIENCE_S)


async def lifted(store: Path) -> None:
    async with SQLiteStore(store) as opened:
        await KillSwitch(opened).lift(by="ana", everything=True)


async def statuses(store: Path) -> Counter[str]:
    async with SQLiteStore(store) as opened:
        return Counter([run.status async for run in all_runs(opened)])


def test_500_runs_of_three_processes_are_stopped_and_each_is_reported(tmp_path: Path) -> None:
    """Then nothing starts in any of them until that is lifted."""
    store = tmp_path / "runs.db"
    with ExitStack() as processes:
        three = [processes.enter_context(started(store, count)) for count in (167, 167, 166)]
        assert [process.next_line() for process in three] == ["going"] * 3
        outcomes = anyio.run(killed, store)
        after = anyio.run(statuses, store)
        refused = [process.starts() for process in three]
        anyio.run(lifted, store)
        again = [process.starts() for process in three]

    assert len({outcome.run_id for outcome in outcomes}) == len(outcomes) == 500
    assert Counter((outcome.status, outcome.ended) for outcome in outcomes) == {("cancelled", True): 500}
    assert after == {"cancelled": 500}
    assert refused == ["starts_blocked"] * 3
    assert again == ["started"] * 3


def test_runs_whose_process_was_killed_are_stopped_too(tmp_path: Path) -> None:
    """Their owner is gone, so the process that uses the switch ends them. The others get the order."""
    store = tmp_path / "runs.db"
    with started(store, 5) as gone, started(store, 5) as there:
        assert [gone.next_line(), there.next_line()] == ["going"] * 2
        gone.kill()
        outcomes = anyio.run(killed, store)

    found = Counter((outcome.status, outcome.ended) for outcome in outcomes)

    assert found.total() == 10
    assert set(found) == {("cancelled", True), ("failed", True)}


@pytest.mark.parametrize("moved_s", [-86_400 * 365, 86_400 * 365])
def test_a_wall_clock_that_was_moved_stops_no_switch(
    moved_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Orders count by the store's numbers: set back or ahead, the runs that were there end."""
    store = tmp_path / "runs.db"
    with started(store, 3) as process:
        assert process.next_line() == "going"
        monkeypatch.setattr("proctor.supervisor.control.kill_switch.datetime", _moved(moved_s))
        outcomes = anyio.run(killed, store)
        refused = process.starts()

    assert [(outcome.status, outcome.ended) for outcome in outcomes] == [("cancelled", True)] * 3
    assert refused == "starts_blocked"


def _moved(seconds: float) -> type:
    from datetime import datetime, timedelta, tzinfo

    class Moved(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + timedelta(seconds=seconds)

    return Moved
