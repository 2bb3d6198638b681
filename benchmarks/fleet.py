"""Runs over workers on Ray: how many a second, beside one supervisor; how soon after a kill; memory of those held."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import msgspec
import psutil

from proctor.adapters.agents.catalog import adapter_named
from proctor.adapters.fleet import Fleet, RunSpec, WorkerStatus
from proctor.adapters.stores import SQLiteStore
from proctor.policies import parse_policies
from proctor.supervisor import RunInfo, Supervisor, all_runs

from .figures import Row, Size

ADDRESS = "127.0.0.2"
"""A loopback address that Ray does not take for another name of the machine, as it does with 127.0.0.1."""
SHORT = {"steps": [{"output": "done"}]}
HELD = {"tools": ["deploy"], "steps": [{"call": "deploy"}]}
OPEN = parse_policies("name: open")
ASKING = parse_policies("{name: asks, rules: [{type: blocklist, tools: [deploy], action: request_approval}]}")
WORKERS = 2
RESOLUTION_S = 0.001
"""Of the times in a record."""


def fleet(size: Size) -> list[Row]:
    """Runs a second, seconds, and KiB of resident memory."""
    short, killed, many = size.of(2000, 10), size.of(100, 4), size.of(10_000, 10)
    with tempfile.TemporaryDirectory() as folder:
        alone = anyio.run(_alone, Path(folder, "alone.db"), short)
        with _cluster() as fleet:
            workers = _Workers(fleet, Path(folder, "fleet.db"), max_running=many)
            together = anyio.run(_together, workers, short)
            recovery = anyio.run(_recovery, workers, killed)
            rows = anyio.run(_held, workers, many)
    return [
        Row("runs a second, one supervisor in one process", alone, "/s"),
        Row(f"runs a second, {WORKERS} workers on Ray", together, "/s"),
        Row(f"workers on Ray / one supervisor, {short:,} short runs", together / alone, "x"),
        Row(f"worker killed, of {killed:,} runs each goes on or is held again after", recovery, "s"),
        *rows,
    ]


class _Workers:
    """The workers on the cluster, by the command line, and the store that they are on."""

    def __init__(self, environment: dict[str, str], path: Path, *, max_running: int) -> None:
        self._environment = environment
        self.path = path
        self._size = ("--workers", str(WORKERS), "--max-running", str(max_running), "--wait", "120")

    def up(self) -> list[WorkerStatus]:
        """Have them work, and say where they are."""
        command = [sys.executable, "-m", "proctor", "fleet", "up", "--json", "--store", str(self.path)]
        done = subprocess.run(
            [*command, *self._size], env=self._environment, stdout=subprocess.PIPE, text=True, check=True
        )
        return [msgspec.json.decode(line, type=WorkerStatus) for line in done.stdout.splitlines()]


async def _alone(path: Path, runs: int) -> float:
    """Runs a second of one supervisor, as many at once as a worker may have."""
    async with SQLiteStore(path) as store:
        async with Supervisor(store) as supervisor:
            adapter = adapter_named("scripted", script=SHORT)
            for _ in range(runs):
                await supervisor.start(adapter, "Go", policies=OPEN)
        return _rate([info async for info in all_runs(store)])


async def _together(workers: _Workers, runs: int) -> float:
    """Runs a second of workers that find all of them waiting."""
    async with SQLiteStore(workers.path) as store, Fleet(store) as fleet:
        spec = RunSpec.of("scripted", "Go", policies=OPEN, options={"script": SHORT})
        handles = [await fleet.start(spec) for _ in range(runs)]
        workers.up()
        for handle in handles:
            await handle.wait_finished()
        return _rate([await handle.info() for handle in handles])


async def _recovery(workers: _Workers, runs: int) -> float:
    """Seconds from the kill of a worker until each run is held, those of the killed one by the run that goes on."""
    async with SQLiteStore(workers.path) as store, Fleet(store) as fleet:
        spec = RunSpec.of("scripted", "Go", policies=ASKING, options={"script": HELD}, context=_about("killed"))
        handles = [await fleet.start(spec) for _ in range(runs)]
        await _all_waiting(store, runs)
        owner = (await handles[0].info()).owner
        assert owner is not None
        os.kill(owner.pid, signal.SIGKILL)
        killed = time.monotonic()
        token = 0
        while (await handles[0].info()).run_id == handles[0].run_id:
            token = await store.wait(token, 1.0)
        await _all_waiting(store, runs)
        seconds = time.monotonic() - killed
        await fleet.switch.kill(by="benchmark", label="phase=killed", wait_s=600)
        return seconds


async def _held(workers: _Workers, runs: int) -> list[Row]:
    """What runs cost that wait for a person, all at once."""
    processes = [psutil.Process(one.pid) for one in workers.up()]
    before = [process.memory_info().rss for process in processes]
    async with SQLiteStore(workers.path) as store, Fleet(store) as fleet:
        spec = RunSpec.of("scripted", "Go", policies=ASKING, options={"script": HELD}, context=_about("held"))
        for _ in range(runs):
            await fleet.start(spec)
        await _all_waiting(store, runs)
        after = [process.memory_info().rss for process in processes]
        started = sorted(
            info.started_at.timestamp()
            for info in [info async for info in all_runs(store)]
            if info.started_at is not None and info.labels == {"phase": "held"}
        )
    part = runs // 10
    early, late = (max(took, RESOLUTION_S) for took in (started[part] - started[0], started[-1] - started[-1 - part]))
    return [
        Row("a worker without runs, resident", sum(before) / len(before) / 1024 / 1024, "MiB"),
        Row(f"a held run, {runs:,} at once", (sum(after) - sum(before)) / runs / 1024, "KiB"),
        Row(f"starting the last tenth of {runs:,} held runs / the first", late / early, "x"),
    ]


async def _all_waiting(store: SQLiteStore, runs: int) -> None:
    """Return once so many calls wait for a person."""
    token = 0
    while len(await store.approvals(limit=runs)) < runs:
        token = await store.wait(token, 1.0)
        await anyio.sleep(runs / 10_000)  # whoever looks takes its share of the processors


def _rate(runs: list[RunInfo]) -> float:
    """Runs a second, from the first start to the last end."""
    begun = min(info.started_at for info in runs if info.started_at is not None)
    ended = max(info.ended_at for info in runs if info.ended_at is not None)
    return len(runs) / max((ended - begun).total_seconds(), RESOLUTION_S)


def _about(phase: str) -> Any:
    from proctor.policies import RunContext

    return RunContext(labels={"phase": phase})


@contextmanager
def _cluster() -> Iterator[dict[str, str]]:
    """A Ray cluster of one node, with a token; gives the environment in which it is found."""
    with socket.socket() as free:
        free.bind((ADDRESS, 0))
        port = free.getsockname()[1]
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # sockets in it have names of 108 bytes at most
    own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0"}
    environment = {**os.environ, **own, "RAY_ADDRESS": f"{ADDRESS}:{port}"}
    where = [f"--node-ip-address={ADDRESS}", f"--port={port}", f"--temp-dir={folder}", "--include-dashboard=false"]
    less = ("--no-monitor", "--include-log-monitor=false")  # nobody scales it or reads its logs
    head = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", *where, *less]
    without = {name: value for name, value in environment.items() if name != "RAY_ADDRESS"}
    node = subprocess.Popen(
        [*head, "--num-cpus=2", "--object-store-memory=80000000"],
        env=without,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _reached(port, node)
        yield environment
    finally:
        processes = psutil.Process(node.pid).children(recursive=True)
        node.kill()  # asked to end, Ray takes half a minute
        node.wait()
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=20)
        shutil.rmtree(folder, ignore_errors=True)


def _reached(port: int, node: subprocess.Popen[bytes]) -> None:
    """Wait until the cluster answers."""
    while node.poll() is None:
        with socket.socket() as trying:
            if trying.connect_ex((ADDRESS, port)) == 0:
                return
        time.sleep(0.1)
    raise RuntimeError("Ray did not start")
