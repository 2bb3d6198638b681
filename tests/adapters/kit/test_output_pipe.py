"""What a client wrote before it asks by another way is handled before it is answered."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from uuid import uuid4

import anyio
import anyio.lowlevel
import pytest

from proctor.adapters.kit.client_process import ClientProcess, start_client
from proctor.adapters.kit.jsonrpc import ByteLines
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = pytest.mark.anyio

WRITING = r"""
import pathlib, sys
for n in range(3):
    print("x" * 10_000, flush=True)
pathlib.Path("written").touch()
sys.stdin.read()
"""


async def started(folder: Path) -> None:
    """It has written all."""
    while not (folder / "written").exists():
        await anyio.sleep(0.01)


async def test_all_that_was_written_is_handled_first(tmp_path: Path) -> None:
    """Also what the reader has not come to, and what it has and still works on."""
    handled: list[int] = []

    async def read(client: ClientProcess, go_on: anyio.Event) -> None:
        async for line in ByteLines(client.stdout):
            await go_on.wait()
            handled.append(len(line))

    command = [sys.executable, "-S", "-c", WRITING]
    with anyio.fail_after(PATIENCE_S):
        async with start_client("it", command, cwd=tmp_path, env=os.environ, mark=uuid4().hex) as client:
            await started(tmp_path)
            go_on = anyio.Event()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(read, client, go_on)
                tasks.start_soon(client.read_stderr)
                with anyio.move_on_after(0):
                    await client.stdout.wait_until_handled()
                before = list(handled)
                go_on.set()
                await client.stdout.wait_until_handled()
                after = list(handled)
                await client.close_input()

    assert (before, after) == ([], [10_000] * 3)


async def test_nobody_waits_for_what_is_over(tmp_path: Path) -> None:
    """Neither after its end nor once it is closed, whoever waited already included."""
    command = [sys.executable, "-S", "-c", WRITING]
    with anyio.fail_after(PATIENCE_S):
        async with start_client("it", command, cwd=tmp_path, env=os.environ, mark=uuid4().hex) as client:
            await started(tmp_path)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.stdout.wait_until_handled)
                await anyio.wait_all_tasks_blocked()
                await client.stdout.aclose()
            with pytest.raises(anyio.ClosedResourceError):
                await client.stdout.receive()
            await client.close_input()
        await client.stdout.wait_until_handled()
