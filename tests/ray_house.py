"""A Ray cluster of two nodes for the tests, in its own processes, none of which remains."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio.to_thread
import msgspec
import psutil
import pytest
from owning_processes import Process

from proctor.adapters.fleet import WorkerStatus
from proctor.supervisor.testing.fakes import PATIENCE_S

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is missing: pip install '.[ray]'")
PROGRAM = Path(__file__).parent / "adapters" / "fleet" / "ray_program.py"
SOON = "RAY_gcs_server_port_wait_time_s"
"""The variable for the number of seconds that Ray retries a cluster that rejects it."""
ENVIRONMENT = {
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": "a-token-of-this-test-that-is-long-enough",
    "RAY_USAGE_STATS_ENABLED": "0",
    SOON: str(PATIENCE_S),
}
ENDS_S = 3.0
"""How long processes of a cluster may take to exit by themselves; if its head was lost, some never do."""


class RayHouse:
    """The cluster. Fleet commands on it block; see `Workers`."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(
            prefix="ray-", dir="/tmp"
        )  # the names of sockets in it have at most 108 bytes
        started = subprocess.Popen(
            [sys.executable, str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **ENVIRONMENT, "RAY_TMPDIR": self._folder},
        )
        self._process = Process(started)
        self._seen: set[psutil.Process] = set()
        try:
            self.address = self._answer()["address"]
        except BaseException:  # no cluster started, so nothing else will end its parts
            self.close()
            raise

    def ask(self, do: str, store: str = "", name: str = "", **more: Any) -> Any:
        """The answer to a command of `ray_program.py`."""
        self._process.go_on(msgspec.json.encode([do, store, name, more]).decode())
        return self._answer()

    def close(self) -> None:
        """End all of it, and wait until it is gone."""
        self._look()
        self._process.end_input()
        self._process.process.wait(PATIENCE_S)
        assert self._process.process.stdout is not None
        try:
            self._process.rest()
        finally:
            self._process.process.stdout.close()
        _, left = psutil.wait_procs(self._seen, timeout=ENDS_S)
        for process in left:
            process.kill()
        psutil.wait_procs(left, timeout=PATIENCE_S)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answer(self) -> Any:
        answer = msgspec.json.decode(self._process.until('{"answer"'))["answer"]
        self._look()
        assert not (isinstance(answer, dict) and "error" in answer), answer
        return answer

    def _look(self) -> None:
        """Record the running processes: orphans could not be found later."""
        try:
            self._seen.update(psutil.Process(self._process.process.pid).children(recursive=True))
        except psutil.NoSuchProcess:
            return


class Workers:
    """The workers of one fleet on the cluster."""

    def __init__(self, house: RayHouse, store: str, name: str) -> None:
        self.house, self.store, self.name = house, store, name

    async def ask(self, do: str, **more: Any) -> list[WorkerStatus]:
        """The result of `up`, `status` or `drain` of `Fleet`."""
        answer = await anyio.to_thread.run_sync(lambda: self.house.ask(do, self.store, self.name, **more))
        return msgspec.convert(answer, list[WorkerStatus])

    async def until(self, wanted: Callable[[list[WorkerStatus]], bool]) -> list[WorkerStatus]:
        """The workers, once they are as expected."""
        deadline = time.monotonic() + PATIENCE_S
        while not wanted(workers := await self.ask("status")):
            assert time.monotonic() < deadline, workers
            await anyio.sleep(0.1)
        return workers

    async def working(self, count: int = 2) -> list[WorkerStatus]:
        """This many workers, once all are working."""
        return await self.until(lambda found: [one.state for one in found] == ["working"] * count)
