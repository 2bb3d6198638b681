"""`approvals`: what waits, and what comes while it watches."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import anyio

from proctor.adapters.stores import SQLiteStore
from proctor.policies.events import Event, RunCompleted, RunStarted, ToolApprovalGranted, ToolApprovalRequested

Cli = Any


def request(n: int, run_id: str = "run_1") -> ToolApprovalRequested:
    return ToolApprovalRequested(
        run_id=run_id,
        session_id="s",
        approval_id=f"{run_id}.{n}",
        tool_name="deploy",
        tool_input={"to": n},
        input_digest="d",
    )


def granted(n: int) -> ToolApprovalGranted:
    return ToolApprovalGranted(run_id="run_1", session_id="s", approval_id=f"run_1.{n}", input_digest="d", by="ana")


async def store(path: Path, *events: Event) -> None:
    async with SQLiteStore(path) as opened:
        await opened.append(events)


def test_a_limited_number_is_listed_oldest_first_by_their_whole_id(cli: Cli, place: Path) -> None:
    """And it is said that there are more."""
    some: list[Event] = [*(request(n) for n in range(1, 6)), granted(2)]
    anyio.run(store, place / "some.db", *some)
    two = cli("approvals", "--limit", "2", "--store", "some.db")
    every = cli("approvals", "--store", "some.db", "--json")

    assert [line for line in two.out.splitlines() if not line.startswith(" ")] == ["run_1.1", "run_1.3"]
    assert two.err == "more are pending; `--limit` shows them\n"
    assert [line["approval_id"] for line in every.lines] == [f"run_1.{n}" for n in (1, 3, 4, 5)]


def test_it_watches_what_comes_and_what_becomes_of_it(tmp_path: Path) -> None:
    """From before the store exists, for writes of any process, until it is interrupted."""
    path = tmp_path / "later.db"
    command = [sys.executable, "-m", "proctor.adapters.cli", "approvals", "--watch", "--json", "--store", str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    watchdog = threading.Timer(60, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None
        anyio.run(store, path, RunStarted(run_id="run_1", session_id="s"), request(1), request(2))
        seen = [json.loads(process.stdout.readline()) for _ in range(2)]
        anyio.run(store, path, granted(1), RunCompleted(run_id="run_1", session_id="s"))
        seen += [json.loads(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGINT)
        code = process.wait(30)
    finally:
        watchdog.cancel()
        process.kill()
        process.communicate()

    assert [line["approval_id"] for line in seen] == ["run_1.1", "run_1.2", "run_1.1", "run_1.2"]
    assert [(line["state"], line["by"]) for line in seen[2:]] == [("granted", "ana"), ("withdrawn", None)]
    assert code in (0, 3)
