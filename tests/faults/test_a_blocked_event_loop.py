"""An agent that blocks the thread: a watchdog reports where."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import structlog

from proctor.supervisor.testing.fakes import PATIENCE_S
from proctor.supervisor.watch import watchdog

PROGRAM = """
import sys, time
from contextlib import asynccontextmanager
import anyio
from proctor.policies import Limits, Policy
from proctor.policies.events import MessageReceived, RunCompleted
from proctor.supervisor import MemoryStore, Supervisor
from proctor.supervisor.testing import FakeAdapter
from proctor.supervisor.watch import watchdog

watchdog.BLOCKED_S = 0.2

def hold_the_thread():
    sys.stdin.readline()

class Blocking(FakeAdapter):
    @asynccontextmanager
    async def open(self, launch):
        yield self

    async def events(self):
        yield MessageReceived(content="hello")
        hold_the_thread()
        yield RunCompleted(output="done")

    def cancel_steps(self):
        return ()

async def main():
    async with Supervisor(MemoryStore()) as supervisor:
        policy = Policy(name="open", limits=Limits(max_tool_calls=9))
        handle = await supervisor.start(Blocking(), "go", policies=[policy], run_id="run_that_blocks")
        await handle.wait()
        print("it is over", file=sys.stderr)

anyio.run(main, backend=sys.argv[1])
"""


@contextmanager
def blocked(backend: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The program with its loop blocked, and its watchdog's report."""
    with subprocess.Popen(
        [sys.executable, "-u", "-c", PROGRAM, backend], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            yield process, process.stderr.readline()
        finally:
            process.kill()


@pytest.mark.anyio
async def test_the_report_on_many_runs_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their number, and the first of them."""
    monkeypatch.setattr(watchdog, "BLOCKED_S", 0.0)
    with structlog.testing.capture_logs() as lines:
        watching = watchdog.Watchdog(structlog.get_logger(), lambda: [f"run-{n}" for n in range(10_000)])
        watchdog._watched.add(watching)
        try:
            watching.check()
            watching.check()
        finally:
            watching.stop()

    assert [line["event"] for line in lines] == ["loop.blocked"]
    assert (lines[0]["runs"], lines[0]["run_ids"][-1], len(lines[0]["run_ids"])) == (10_000, "run-19", 20)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_watchdog_reports_what_blocks_the_loop(backend: str) -> None:
    """On standard error, if the program has configured no log: the runs, the stack, and in asyncio the task."""
    with blocked(backend) as (process, line):
        assert "event='loop.blocked'" in line
        assert "run_ids=['run_that_blocks']" in line
        assert "in hold_the_thread" in line
        assert backend == "trio" or "task='DetachedTask._run'" in line
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write("go on\n")
        process.stdin.flush()
        assert process.stderr.readline() == "it is over\n"
        assert process.wait(PATIENCE_S) == 0
