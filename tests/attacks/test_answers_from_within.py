"""What a supervised run starts answers no approval and ends no run: known by its environment, or by its parents."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from uuid import uuid4

import anyio
import pytest

from proctor.adapters.kit.processes.commands import Subprocesses
from proctor.adapters.stores import SQLiteStore
from proctor.supervisor import RunInfo
from proctor.supervisor.testing.patience import PATIENCE_S
from proctor.supervisor.testing.stores.answering import requested

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(
        sys.platform != "linux", reason="who a process descends from is hidden elsewhere; see own_tree"
    ),
]

COMMANDS = {"approve": "approve r.1", "deny": "deny r.1", "kill": "kill --all", "kill a session": "kill --session s"}
WAYS = {
    "as it is": "{}",
    "without its environment": "env -i {}",
    "with another mark": "PROCTOR_RUN= {}",
    "in a session of its own": "setsid env -i {}",
    "re-parented, with its environment": "(setsid {} &)",
    "re-parented, without its environment": "(setsid env -i {} &)",
    "re-parented twice, without its environment": "(setsid bash -c 'env -i setsid {} & exit' &)",
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_what_a_run_starts_answers_nothing_and_ends_nothing(tmp_path: Path, way: str, command: str) -> None:
    """The command says so and does nothing, from wherever in the run's tree it is called."""
    path, answer = tmp_path / "runs.db", tmp_path / "told"
    async with SQLiteStore(path) as store:
        await store.create_run(RunInfo(run_id="r", session_id="s"))
        await store.append([requested("r.1")])
    line = shlex.join([sys.executable, "-m", "proctor.adapters.cli", *command.split(), "--store", str(path)])
    script = tmp_path / "ask"
    script.write_text(f"#!/bin/bash\n{line} > {answer}.part 2>&1\nmv {answer}.part {answer}\n")
    script.chmod(0o755)
    run = Subprocesses(uuid4().hex)

    await run.run(["bash", "-c", way.format(script)], cwd=tmp_path)
    with anyio.fail_after(PATIENCE_S):
        while not answer.exists():
            await anyio.lowlevel.checkpoint()
    await run.end()
    async with SQLiteStore(path) as store:
        states = [approval.state for approval in await store.approvals()]
        orders = await store.blocks()

    assert "is for people" in answer.read_text()
    assert (states, list(orders)) == (["requested"], [])
