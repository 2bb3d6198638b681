"""Processes that own runs, and the invariants of the event log they leave."""

import os
import random
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from queue import Queue
from typing import Self

import anyio

from proctor.adapters.stores import open_store
from proctor.policies.events import Event
from proctor.supervisor import Store, StoreError, create_run
from proctor.supervisor.control.ownership import reap
from proctor.supervisor.testing.fakes import PATIENCE_S
from tests.forked_programs import Forked
from tests.stored_rows import stored_events
from tests.whole_records import whole_record, wrong

PROGRAM = Path(__file__).parent / "adapters" / "stores" / "tables" / "owning_process.py"
SESSIONS = 6


class Process:
    """A process whose output lines can be waited for."""

    def __init__(self, process: subprocess.Popen[str] | Forked) -> None:
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

    def until(self, start: str | tuple[str, ...]) -> str:
        """The next line with this beginning."""
        while (line := self._fresh.get(timeout=PATIENCE_S)) is not None:
            if line.startswith(start):
                return line
        self._fresh.put(None)  # for `rest`
        raise AssertionError(f"it ended before it said `{start}`: {self.lines}")

    def rest(self) -> list[str]:
        """All lines, once it has ended."""
        while self._fresh.get(timeout=PATIENCE_S) is not None:
            pass
        self._fresh.put(None)  # for the next call
        return self.lines

    def go_on(self, line: str = "") -> None:
        """Write a line to it."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def end_input(self) -> None:
        """Close its input."""
        assert self.process.stdin is not None
        self.process.stdin.close()


@contextmanager
def process(name: str, *arguments: str, program: Path = PROGRAM) -> Iterator[Process]:
    with Forked(program, [name, *arguments], cwd=Path.cwd(), env=os.environ) as started:
        try:
            yield Process(started)
        finally:
            started.kill()


async def ended_by_another(store: Store) -> list[Event]:
    """The events of session `s`, once its run `held` is lost and ended here. Retries as a supervisor does: a database
    keeps the locks of a suspended process for some seconds.
    """
    token = 0
    while (run := await store.run("held")) is None or run.status != "lost":
        token = await store.wait(token, 0.1)
    with anyio.fail_after(PATIENCE_S):
        while (await store.run("held")).status != "failed":  # type: ignore[union-attr]
            with suppress(StoreError):
                assert [run.run_id for run in await reap(store)] == ["held"]
    return await stored_events(store)


class Workers:
    """Processes that execute runs created meanwhile, one on each of these stores, until they are killed."""

    def __init__(self, store: str, names: Sequence[str]) -> None:
        self._store = store
        self._names = names
        self._created = 0
        self.lines: list[str] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.create()
            self._workers = [stack.enter_context(process(name, "work")) for name in self._names]
            self._pids = [self._start(worker) for worker in self._workers]
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        with self._stack:
            for worker, pid in zip(self._workers, self._pids, strict=True):
                worker.end_input()
                os.kill(pid, signal.SIGKILL)
            self.lines = [line for worker in self._workers for line in worker.rest()]

    def create(self) -> None:
        """Create some more runs, and wait for a moment."""

        async def create() -> None:
            async with open_store(self._store) as store:
                for _ in range(8):
                    session_id = f"s{random.randrange(SESSIONS)}"
                    await create_run(store, "go", run_id=f"r{self._created}", session_id=session_id)
                    self._created += 1
            await anyio.sleep(random.uniform(0, 0.15))  # real processes, disturbed at any moment

        anyio.run(create)

    def kill(self, victim: int) -> None:
        """Kill one; another replaces it."""
        os.kill(self._pids[victim], signal.SIGKILL)
        self._workers[victim].until("dead")
        self._pids[victim] = self._start(self._workers[victim])

    def _start(self, worker: Process) -> int:
        worker.go_on("start")
        return int(worker.until("pid").split()[1])


async def check_record(name: str, lines: list[str]) -> None:
    """Raises AssertionError if anything is wrong with the event log of workers that have written these lines."""
    async with open_store(name) as store:
        lost = await reap(store)
        again = await reap(store)
        runs, sessions = await whole_record(store)
    assert list(wrong(runs, sessions, lines, unstarted=True)) == []
    assert {run.status for run in runs} <= {"completed", "failed", "created"}
    assert (again, {run.status for run in lost} <= {"lost"}) == ([], True)
