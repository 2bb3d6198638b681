"""The event log names the person who cancelled a run, whatever interface they used."""

import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from answering import token_of
from web_server import site

from proctor.adapters.stores import MemoryStore, SQLiteStore
from proctor.policies import parse_policies
from proctor.policies.events import RunCancelled
from proctor.supervisor import RunHandle, Supervisor, UsageError, cancel_for_approval
from proctor.supervisor.testing.fakes import FakeAdapter, Pause

pytestmark = pytest.mark.anyio
POLICIES = parse_policies("{name: open, limits: {max_tool_calls: 9}}")
ASKED = {"tool_name": "bash", "tool_call_id": "x"}
Way = Callable[[Path, Supervisor, RunHandle], Awaitable[object]]


async def by_handle(_folder: Path, _supervisor: Supervisor, handle: RunHandle) -> None:
    await handle.cancel(reason="enough", by="ana")


async def by_supervisor(_folder: Path, supervisor: Supervisor, _handle: RunHandle) -> None:
    await supervisor.cancel_all("enough", by="ana")


async def by_handle_for_approval(folder: Path, _supervisor: Supervisor, handle: RunHandle) -> None:
    async with SQLiteStore(folder / "runs.db") as store:
        await cancel_for_approval(store, handle, handle.run_id, ASKED, by="ana")


async def by_store_for_approval(folder: Path, _supervisor: Supervisor, handle: RunHandle) -> None:
    async with SQLiteStore(folder / "runs.db") as store:
        await cancel_for_approval(store, FakeAdapter(), handle.run_id, ASKED, by="ana")


async def by_switch(_folder: Path, supervisor: Supervisor, handle: RunHandle) -> None:
    await supervisor.switch.kill(by="ana", reason="enough", run_id=handle.run_id)


async def by_command(folder: Path, _supervisor: Supervisor, handle: RunHandle) -> None:
    store = str(folder / "runs.db")
    order = ["kill", "--run", handle.run_id, "--by", "ana", "--reason", "enough", "--store", store]
    program = [sys.executable, "-m", "proctor", *order]
    await anyio.run_process(program, env=os.environ | token_of(order), stderr=subprocess.PIPE)


async def by_http(folder: Path, _supervisor: Supervisor, handle: RunHandle) -> None:
    def ask() -> None:
        with site(folder) as served:
            answer = served.ask("POST", f"/api/runs/{handle.run_id}/cancel", body={"reason": "enough"})
        assert answer.status < 300, answer

    await anyio.to_thread.run_sync(ask)


WAYS: list[Way] = [
    *(by_handle, by_supervisor, by_handle_for_approval, by_store_for_approval),
    *(by_switch, by_command, by_http),
]


@pytest.mark.parametrize("way", WAYS)
async def test_the_log_names_the_person_who_cancelled_a_run(way: Way, tmp_path: Path) -> None:
    """From Python, in this process and through the store, from the command line, and over HTTP."""
    async with SQLiteStore(tmp_path / "runs.db") as store, Supervisor(store) as supervisor:
        handle = await supervisor.start(FakeAdapter([Pause()]), "go", policies=POLICIES)
        await way(tmp_path, supervisor, handle)
        result = await handle.wait()

    end: Any = result.events[-1]
    assert isinstance(end, RunCancelled)
    assert (end.by, result.status) == ("ana", "cancelled")


async def test_a_cancel_by_a_program_names_nobody() -> None:
    """It has a reason. A name must be text."""
    async with Supervisor(MemoryStore()) as supervisor:
        handle = await supervisor.start(FakeAdapter([Pause()]), "go", policies=POLICIES)
        with pytest.raises(UsageError, match="by"):
            await handle.cancel(by=7)  # type: ignore[arg-type]
        await handle.cancel(reason="the server stops")
        result = await handle.wait()

    end: Any = result.events[-1]
    assert (end.by, end.reason) == ("", "the server stops")
