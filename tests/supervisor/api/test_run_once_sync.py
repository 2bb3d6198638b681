"""`run_once_sync`: a run from synchronous code, such as a script, a notebook or a thread, with or without a running
loop.
"""

from __future__ import annotations

import asyncio
import inspect
import signal
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio
from supervised import OPEN, denying, record_of

from proctor.adapters.stores import SQLiteStore
from proctor.policies import Policy, PolicyViolationError, parse_policies
from proctor.policies.events import RunCancelled
from proctor.supervisor import MemoryStore, Store, Supervisor, run_once, run_once_sync
from proctor.supervisor.testing.fakes import PATIENCE_S, Ask, FakeAdapter, Pause


def done(policy: Policy) -> str:
    return run_once_sync(FakeAdapter([Ask(name="read")]), "go", policies=[policy]).status


def test_it_takes_the_arguments_of_run_once() -> None:
    """And `timeout_s`, as the caller has no scope to put around it."""
    own, theirs = inspect.signature(run_once_sync).parameters, inspect.signature(run_once).parameters

    assert own.keys() == {*theirs, "timeout_s"}
    assert own["options"] == theirs["options"]


def last_event(store: Store) -> Any:
    async def read() -> Any:
        events = await record_of(store)
        await store.aclose()
        return events[-1]

    return anyio.run(read)


def test_a_policy_that_ends_the_run_raises() -> None:
    """With the result so far."""
    with pytest.raises(PolicyViolationError) as raised:
        run_once_sync(FakeAdapter([Ask(name="bash")]), "go", policies=[denying("cancel")])

    assert raised.value.partial.status == "cancelled"


@pytest.mark.parametrize("run", [asyncio.run, lambda coroutine: trio.run(lambda: coroutine)], ids=["asyncio", "trio"])
def test_it_works_within_a_running_event_loop(run: Any) -> None:
    """As in a notebook's cell. The loop continues afterwards."""

    async def cell() -> str:
        return done(OPEN)

    assert run(cell()) == "completed"


def test_it_works_in_a_callback_of_a_running_loop() -> None:
    """No task is active there, but no second loop may start in the thread."""
    loop, found = asyncio.new_event_loop(), list[str]()
    loop.call_soon(lambda: found.append(done(OPEN)))
    loop.call_soon(loop.stop)
    with closing(loop):
        loop.run_forever()

    assert found == ["completed"]


def test_it_works_in_any_thread() -> None:
    """In the workers of a server, several at once."""
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(done(OPEN))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)

    assert found == ["completed"] * 3


@pytest.mark.parametrize("backends", [("asyncio", "asyncio"), ("asyncio", "trio"), ("trio", "trio")])
def test_a_memory_store_serves_event_loops_of_several_threads(backends: tuple[str, str]) -> None:
    """An answer in one loop arrives in the other. Each owner's lease uses its own clock."""
    store, adapter, ended = MemoryStore(), FakeAdapter([Ask(name="deploy")]), list[str]()
    asks = parse_policies("{name: p, approval: {timeout_s: 60}, nets: [require human-approval before deploy]}")

    async def run() -> None:
        ended.append((await run_once(adapter, "go", policies=asks, store=store)).status)

    async def answer() -> None:
        with anyio.fail_after(PATIENCE_S):
            async with Supervisor(store) as supervisor:
                async with supervisor.subscribe(after="start", types=["tool_approval_requested"]) as events:
                    request: Any = await anext(events)
                await supervisor.approve(request.approval_id, by="ana")

    thread = threading.Thread(target=anyio.run, args=(run,), kwargs={"backend": backends[0]})
    thread.start()
    anyio.run(answer, backend=backends[1])
    thread.join(PATIENCE_S)

    assert (ended, len(adapter.ran)) == (["completed"], 1)


@pytest.mark.parametrize("kind", [MemoryStore, SQLiteStore])
def test_a_wait_in_a_closed_loop_blocks_no_other_wait(kind: Any, tmp_path: Path) -> None:
    """A notebook may close a loop with tasks in it."""
    store = kind() if kind is MemoryStore else kind(tmp_path / "s.db")
    loop, tasks = asyncio.new_event_loop(), list[Any]()

    async def begin() -> None:
        tasks.append(asyncio.create_task(store.wait(await store.wait(0, 0), 60)))
        await asyncio.sleep(0)

    loop.run_until_complete(begin())
    loop.close()
    result = anyio.run(lambda: run_once(FakeAdapter([Ask(name="read")]), "go", policies=[OPEN], store=store))

    assert result.status == "completed"
    tasks[0]._log_destroy_pending = False


@pytest.mark.parametrize("inside", [False, True], ids=["alone", "within a loop"])
def test_a_timeout_ends_the_run_and_is_recorded(inside: bool) -> None:
    """TimeoutError is raised once the run has ended."""
    store, adapter = MemoryStore(), FakeAdapter([Pause()])

    def limited() -> None:
        run_once_sync(adapter, "go", policies=[OPEN], store=store, timeout_s=2.0)

    async def cell() -> None:
        limited()

    with pytest.raises(TimeoutError):
        anyio.run(cell) if inside else limited()

    last = last_event(store)
    assert isinstance(last, RunCancelled)
    assert last.reason == "its caller was cancelled"
    assert adapter.closed == 1


ALONE = "go()"
IN_A_LOOP = """
import asyncio

async def cell():
    go()

asyncio.run(cell())
"""
AS_A_KERNEL = """
import asyncio

loop = asyncio.new_event_loop()
loop.call_soon(go)
loop.run_forever()
"""
INTERRUPTED = """
import sys

import anyio

from proctor.adapters.stores import SQLiteStore
from proctor.policies import Limits, Policy
from proctor.supervisor import run_once_sync
from proctor.supervisor.testing import Ask, FakeAdapter, Pause

async def say():
    print("runs", flush=True)

def go():
    adapter = FakeAdapter([Ask(name="read", meanwhile=say), Pause()])
    policy = Policy(name="open", limits=Limits(max_tool_calls=9))
    try:
        run_once_sync(adapter, "go", policies=[policy], store=SQLiteStore(sys.argv[1]))
    except KeyboardInterrupt:
        print("interrupted, released", adapter.closed, flush=True)
        raise SystemExit(7)

"""


@pytest.mark.parametrize("where", [ALONE, IN_A_LOOP, AS_A_KERNEL], ids=["alone", "in a loop", "as a kernel"])
def test_ctrl_c_ends_the_run_and_is_recorded(where: str, tmp_path: Path) -> None:
    """One is enough: KeyboardInterrupt is raised when the agent has exited and the end is stored."""
    store = tmp_path / "runs.db"
    script = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED + where, str(store)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert script.stdout is not None
    with script:
        first = script.stdout.readline()
        script.send_signal(signal.SIGINT)
        output, errors = script.communicate(timeout=PATIENCE_S)

    assert (first, output, script.returncode) == (b"runs\n", b"interrupted, released 1\n", 7), errors
    assert isinstance(last_event(SQLiteStore(store)), RunCancelled)


CELL = """
from proctor.policies import Limits, Policy
from proctor.supervisor import MemoryStore, Store, run_once, run_once_sync
from proctor.supervisor.testing import Ask, FakeAdapter, Pause

async def say():
    print("runs", flush=True)

policy, store = Policy(name="open", limits=Limits(max_tool_calls=9)), MemoryStore()
print(run_once_sync(FakeAdapter(), "go", policies=[policy]).status)
"""
STUCK_CELL = """
stuck = FakeAdapter([Ask(name="read", meanwhile=say), Pause()])
run_once_sync(stuck, "go", policies=[policy], store=store)
"""
LATER_CELL = "print([run.status for run in await store.runs()])"


def test_a_notebooks_interrupt_ends_the_run() -> None:
    """In a real kernel: the cell is interrupted, the end is recorded, and the next cell works."""
    client = pytest.importorskip("jupyter_client", reason="pip install ipykernel")
    manager, kernel = client.manager.start_new_kernel(kernel_name="python3", extra_arguments=["--quiet"])

    def cell(code: str, *, stop: bool = False) -> tuple[str, str]:
        texts: list[str] = []

        def hear(message: Any) -> None:
            if message["msg_type"] == "stream":
                texts.append(message["content"]["text"])
                if stop:
                    manager.interrupt_kernel()

        reply = kernel.execute_interactive(code, timeout=PATIENCE_S, output_hook=hear)
        return reply["content"].get("ename", ""), "".join(texts)  # a kernel may send a line in parts

    try:
        assert cell(CELL) == ("", "completed\n")
        assert cell(STUCK_CELL, stop=True) == ("KeyboardInterrupt", "runs\n")
        assert cell(LATER_CELL) == ("", "['cancelled']\n")
    finally:
        kernel.stop_channels()
        manager.shutdown_kernel(now=True)
