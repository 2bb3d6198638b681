"""Clients that start at the same time in one home that is new to them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.adapters import CodexAdapter
from proctor.adapters.agents.codex import connection
from proctor.adapters.agents.codex.connection import turn_to_start
from proctor.supervisor.errors import ProviderUnavailableError
from proctor.supervisor.testing.fakes import PATIENCE_S

PROCESSES, HOMES = 2, 4
PREPARING = """
import sys
import anyio
from proctor.adapters import CodexAdapter
print("ready", flush=True)
sys.stdin.readline()
here = {"name": "here", "base_url": "http://127.0.0.1:9/v1", "wire_api": "responses", "requires_openai_auth": False}
config = {"model_provider": "here", "model_providers.here": here}
for home in sys.argv[1:]:
    env = {"PATH": "/usr/bin:/bin", "HOME": home, "CODEX_HOME": home}
    try:
        anyio.run(CodexAdapter(cwd=home, env=env, config=config).prepare)
    except Exception as error:
        print(f"{type(error).__name__}: {error}", getattr(error, "details", ""), flush=True)
"""


@pytest.mark.codex
def test_processes_that_start_clients_at_the_same_time_all_start_them(tmp_path: Path) -> None:
    """Without waiting for each other, all clients but one end with an error of their database."""
    homes = [tmp_path / f"home-{n}" for n in range(HOMES)]
    for home in homes:
        home.mkdir()
    command = [sys.executable, "-c", PREPARING, *map(str, homes)]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()

    assert [process.communicate(timeout=PATIENCE_S)[0] for process in started] == [""] * PROCESSES


@pytest.mark.anyio
@pytest.mark.codex
async def test_runs_that_start_at_the_same_time_in_a_new_home_all_complete(bench: Any) -> None:
    """Tasks of one event loop."""
    shutil.rmtree(bench.home)
    bench.home.mkdir()
    ended: list[str] = []

    async def one() -> None:
        events = await bench.run()
        ended.append(events[-1].type)

    async with anyio.create_task_group() as runs:
        for _ in range(4):
            runs.start_soon(one)

    assert ended == ["run_completed"] * 4


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> anyio.Event:
    """Set when a start has found that it is another one's turn."""
    found = anyio.Event()
    lock = connection._lock

    def watched(folder: int) -> bool:
        taken = lock(folder)
        if not taken:
            found.set()
        return taken

    monkeypatch.setattr(connection, "_lock", watched)
    return found


async def given_up(env: dict[str, str], refused: anyio.Event) -> None:
    """A start that is given up once it had to wait."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(turn_to_start, env)
        await refused.wait()
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_the_next_start_waits_until_the_one_before_is_over(tmp_path: Path, refused: anyio.Event) -> None:
    """Starts in other homes do not, and one that is given up leaves its turn to the next."""
    (tmp_path / "other").mkdir()
    env = {"CODEX_HOME": str(tmp_path)}
    with anyio.fail_after(PATIENCE_S):
        first = await turn_to_start(env)
        (await turn_to_start({"CODEX_HOME": str(tmp_path / "other")})).over()
        assert not refused.is_set()
        await given_up(env, refused)
        first.over()
        first.over()
        (await turn_to_start(env)).over()


@pytest.mark.anyio
async def test_databases_in_a_folder_of_their_own_are_what_is_waited_for(
    tmp_path: Path, refused: anyio.Event
) -> None:
    """Two homes may share them."""
    shared = {"CODEX_SQLITE_HOME": str(tmp_path / "shared")}
    with anyio.fail_after(PATIENCE_S):
        first = await turn_to_start({"HOME": str(tmp_path / "a"), **shared})
        await given_up({"HOME": str(tmp_path / "b"), **shared}, refused)
        first.over()


@pytest.mark.anyio
@pytest.mark.codex
async def test_a_home_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    """The client says so; the user's own home, not named by anybody, is made as the client would."""
    named = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "CODEX_HOME": str(tmp_path / "missing")}
    with pytest.raises(ProviderUnavailableError) as caught:
        await CodexAdapter(cwd=tmp_path, env=named).prepare()
    (await turn_to_start({"HOME": str(tmp_path)})).over()

    assert "missing" in str(caught.value.details)
    assert os.listdir(tmp_path) == [".codex"]
