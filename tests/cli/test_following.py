"""`tail -f` as a process of its own, started before there is a store."""

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
from proctor.policies.events import MessageReceived, RunStarted


def test_it_waits_for_the_store_and_shows_what_comes(tmp_path: Path) -> None:
    """What another process stores, of whatever run, until it is interrupted."""
    path = tmp_path / "later.db"
    command = [sys.executable, "-m", "proctor.adapters.cli", "tail", "-f", "--json", "--store", str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    watchdog = threading.Timer(60, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None
        seen = []
        for n in range(3):
            anyio.run(_store, path, n)
            seen += [json.loads(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGINT)
        code = process.wait(30)
    finally:
        watchdog.cancel()
        process.kill()
        process.communicate()

    assert [(line["run_id"], line["type"]) for line in seen] == [
        (f"r{n}", type) for n in range(3) for type in ("run_started", "message_received")
    ]
    assert code in (0, 3)


async def _store(path: Path, n: int) -> None:
    async with SQLiteStore(path) as store:
        ids: Any = {"run_id": f"r{n}", "session_id": f"s{n}"}
        await store.append([RunStarted(**ids), MessageReceived(content=n, **ids)])
