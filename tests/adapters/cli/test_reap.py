"""`reap`: lost runs are ended, with their orphan processes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from stored_rows import in_store

from proctor.adapters.cli.options import store_named
from proctor.adapters.fleet.worker import Worker
from proctor.adapters.kit.process_tree import marked_environment
from proctor.adapters.operations.service import OperatorService
from proctor.supervisor import RunInfo, Store
from proctor.supervisor.ports.processes import process_mark
from proctor.supervisor.testing.fakes import PATIENCE_S

from .conftest import Cli

PROCTOR = [sys.executable, "-m", "proctor"]
RUN = ["run", "--adapter", "scripted", "--set", "script=agent.yaml", "--json", "--policy"]


def killed_run(place: Path) -> dict[str, Any]:
    """The first event of a run whose supervisor was killed while its agent was silent."""
    place.joinpath("agent.yaml").write_text("steps:\n  - silence: forever\n")
    command = [*PROCTOR, *RUN, "org.yaml", "go"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        events = (json.loads(line) for line in process.stdout)
        started: dict[str, Any] = next(event for event in events if event["type"] == "run_started")
        process.kill()
    return started


def test_a_lost_run_is_listed_as_lost_and_ended_by_reap(cli: Cli, place: Path) -> None:
    """Once: it is listed with its owner, then it has one end with the reason. After that, as without a store, nothing
    is left to do.
    """
    assert (cli("reap").code, cli("reap").err) == (0, "nothing to end: there are no lost runs\n")
    started = killed_run(place)
    listed = cli("runs", "--status", "lost", "--json").lines
    reaped = cli("reap")
    end = cli("show", started["run_id"], "--json").lines[-1]

    assert [(run["run_id"], run["status"], run["owner"]["gone"]) for run in listed] == [
        (started["run_id"], "lost", True)
    ]
    assert reaped.code == 0
    assert reaped.out.startswith(f"{started['run_id']}: ended; its supervisor, process ")
    assert (end["type"], end["error"]["code"]) == ("run_failed", "owner_lost")
    assert cli("reap").err == "nothing to end: there are no lost runs\n"
    assert cli("runs", "--json").lines[0]["status"] == "failed"


async def worked(run_id: str, store: Store) -> None:
    """A worker of the fleet checks the store."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Worker(store).run)
        token = 0
        while (run := await store.run(run_id)) is None or run.status != "failed":
            token = await store.wait(token, 0.1)
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("how", ["reap", "kill", "cancel", "worker"])
def test_orphan_processes_of_a_lost_run_are_ended(cli: Cli, place: Path, how: str) -> None:
    """They have its mark, and the event log has the outcome. A process of a run with the same id in another store is
    left alone.
    """
    started = killed_run(place)
    run_id, store = started["run_id"], store_named(None)
    here = in_store(store, lambda store: store.place()).store_id
    end_it: dict[str, Callable[[], object]] = {
        "reap": lambda: cli("reap"),
        "kill": lambda: cli("kill", run_id),
        "cancel": lambda: in_store(
            store, lambda store: OperatorService(store).cancel(run_id, by="ana", reason="it is lost")
        ),
        "worker": lambda: in_store(store, partial(worked, run_id)),
    }
    sleep = [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"]
    with (
        subprocess.Popen(sleep, env=marked_environment(process_mark(run_id, here)), stdout=subprocess.PIPE) as left,
        subprocess.Popen(
            sleep, env=marked_environment(process_mark(run_id, "another")), stdout=subprocess.PIPE
        ) as another,
    ):
        for process in (left, another):
            assert process.stdout is not None
            process.stdout.readline()
        try:
            end_it[how]()
            code = left.wait(PATIENCE_S)
            alive = psutil.pid_exists(another.pid) and another.poll() is None
        finally:
            left.kill()
            another.kill()
    end = cli("show", started["run_id"], "--json").lines[-1]

    assert (code < 0 or os.name == "nt", alive) == (True, True)
    assert left.pid in end["error"]["details"]["killed"]


def test_unstarted_runs_are_withdrawn_on_request(cli: Cli, place: Path) -> None:
    """Those older than the given age; `reap` alone keeps them."""
    for run_id, age in (("old", timedelta(hours=30)), ("young", timedelta(hours=3))):
        run = RunInfo(run_id=run_id, session_id=f"s-{run_id}", created_at=datetime.now(UTC) - age)
        in_store(place / "runs.db", lambda store, run=run: store.create_run(run))
    alone = cli("reap", "--store", "runs.db")
    reaped = cli("reap", "--created-older-than", "1d", "--store", "runs.db")
    again = cli("reap", "--created-older-than", "1h", "--store", "runs.db", "--json").lines
    statuses = {run["run_id"]: run["status"] for run in cli("runs", "--store", "runs.db", "--json").lines}
    end = cli("show", "old", "--store", "runs.db", "--json").lines[-1]

    assert (alone.code, alone.out) == (0, "")
    assert reaped.out.startswith("old: withdrawn; created ")
    assert len(reaped.out.splitlines()) == 1
    assert again == [{"run_id": "young", "session_id": "s-young", "status": "cancelled", "owner": None}]
    assert statuses == {"old": "cancelled", "young": "cancelled"}
    assert (end["type"], "and never started" in end["reason"]) == ("run_cancelled", True)
    assert cli("reap", "--created-older-than", "soon").code == 2
