"""Owners in processes of their own: raced, stopped, killed, and reached by the kill switch.

`PROCTOR_KILLS=300` kills so many, in place of a few; see docs/long-runs.md.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import anyio
import pytest
from owning_processes import SESSIONS, check_record, process, recorded
from postgres_server import needs_postgres, new_database
from stopping import stop_between_writes

from proctor.adapters.stores import SQLiteStore, open_store
from proctor.adapters.stores.audit.audit import audited
from proctor.adapters.stores.store_names import is_url
from proctor.policies.events import TERMINAL, Event, RunCompleted, RunFailed
from proctor.supervisor import KillOutcome, KillSwitch, RunInfo, Store, StoreError, all_runs, create_run
from proctor.supervisor.control.ownership import reap
from proctor.supervisor.testing.fakes import PATIENCE_S

KILLS = int(os.environ.get("PROCTOR_KILLS", "6"))
RACES = 5


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=needs_postgres)])
def name(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A new store's path or URL."""
    if request.param == "sqlite":
        yield str(tmp_path / "record.db")
    else:
        with new_database() as url:
            yield url


def test_a_created_run_given_to_two_processes_runs_once(name: str) -> None:
    """Repeatedly: one executes it, the other learns so."""

    async def created(n: int) -> None:
        async with open_store(name) as store:
            await create_run(store, "go", run_id=f"r{n}", session_id=f"s{n}")

    async def ends() -> list[list[type[Event]]]:
        async with open_store(name) as store:
            found = [await recorded(store, f"s{n}") for n in range(RACES)]
        return [[type(event) for event in events if isinstance(event, TERMINAL)] for events in found]

    for n in range(RACES):
        anyio.run(created, n)
        with process(name, "execute", f"r{n}") as one, process(name, "execute", f"r{n}") as other:
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


def test_an_owner_that_was_stopped_comes_back_fenced(name: str) -> None:
    """Its lease was over and its run ended meanwhile: what its agent asks for then does not run."""

    async def ended_by_another() -> list[Event]:
        async with open_store(name) as store:
            token = 0
            while (run := await store.run("held")) is None or run.status != "lost":
                token = await store.wait(token, 0.1)
            assert await reaped(store) == ["held"]
            events: list[Event] = await recorded(store, "s")
            return events

    async def reaped(store: Store) -> list[str]:
        """Tried again as a supervisor does: a database keeps the locks of who is stopped for some seconds."""
        with anyio.fail_after(PATIENCE_S):
            while True:
                with suppress(StoreError):
                    return [run.run_id for run in await reap(store)]

    async def in_the_end() -> list[Event]:
        async with open_store(name) as store:
            events: list[Event] = await recorded(store, "s")
            return events

    with process(name, "hold", "1") as owner:
        owner.until("ran held c0")
        if is_url(name):
            owner.process.send_signal(signal.SIGSTOP)
        else:
            stop_between_writes(owner.process, Path(name))
        before = anyio.run(ended_by_another)
        owner.process.send_signal(signal.SIGCONT)
        owner.go_on()
        lines = owner.rest()
    after = anyio.run(in_the_end)

    assert [line for line in lines if line.startswith("ran")] == ["ran held c0"]
    assert lines[-1].startswith("refused fenced")
    assert after == before
    assert isinstance(after[-1], RunFailed)
    assert after[-1].error["code"] == "owner_lost"


def test_an_owner_that_lives_is_left_alone(name: str) -> None:
    """Nobody takes its runs away, however long they take."""

    async def looked_at() -> tuple[str, list[RunInfo]]:
        async with open_store(name) as store:
            await anyio.sleep(1.5)  # three leases, on the clock of real processes
            run = await store.run("held")
            assert run is not None
            return run.status, await reap(store)

    with process(name, "hold", "0.5") as owner:
        owner.until("ran held c0")
        found = anyio.run(looked_at)
        for _ in range(2):
            owner.go_on()
        lines = owner.rest()

    assert found == ("running", [])
    assert lines[-1] == "ended completed"


@pytest.mark.parametrize("kills", [KILLS])
def test_killing_one_of_three_owners_at_random_moments_loses_nothing(name: str, kills: int) -> None:
    """No acknowledged event is lost, there is no gap, every run has one end, and no call ran twice or unrecorded."""
    created = 0

    async def more_runs() -> None:
        nonlocal created
        async with open_store(name) as store:
            for _ in range(8):
                session_id = f"s{random.randrange(SESSIONS)}"
                await create_run(store, "go", run_id=f"r{created}", session_id=session_id)
                created += 1

    anyio.run(more_runs)
    with process(name, "work") as one, process(name, "work") as two, process(name, "work") as three:
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

    anyio.run(check_record, name, lines)
    assert audited(name).findings == ()


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
