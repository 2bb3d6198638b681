"""Hooks of Claude Code as processes, without the client."""

import json
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from stored_rows import stored_rows

from proctor.adapters.hooks.daemon_client import DAEMON
from proctor.adapters.hooks.settings import command
from proctor.supervisor.testing.fakes import PATIENCE_S


def daemons(store: Path) -> list[int]:
    """The processes that judge hooks by this store."""
    found = ((process.pid, process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"]))
    return [pid for pid, words in found if DAEMON in words and str(store) in words]


def wait_for_hooks(store: Path) -> None:
    """Wait until no hook is running that asks for a decision by this store: a client may end before its last one."""
    running = psutil.process_iter(["cmdline"])
    asking = [one for one in running if str(store) in (words := one.info["cmdline"] or ()) and DAEMON not in words]
    _, left = psutil.wait_procs(asking, timeout=PATIENCE_S)
    assert not left


def end_daemons(store: Path) -> None:
    """End the processes that judge hooks by this store."""
    for pid in daemons(store):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def recorded(store: Path, *types: str) -> list[str]:
    """The types of the stored events, in order, those of `types` if any are given."""
    rows = stored_rows(store, "SELECT type FROM events ORDER BY position")
    return [name for (name,) in rows if not types or name in types]


class HookProcesses:
    """A hook's command line in a folder, as the client runs it, and the process that judges behind it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.policy = folder / "policy.yaml"
        self.policy.write_text("{name: secret}")
        self.store = folder / "store.db"
        self._words = command([self.policy], self.store)
        self.more: tuple[str, ...] = ()
        self.cwd: Path | None = None
        self.env: dict[str, str] = {}

    @property
    def place(self) -> Path:
        """The folder of the socket."""
        return Path(self.command[4])

    @property
    def command(self) -> list[str]:
        """The words of the hook's line, as `settings` writes them."""
        return [*self._words, *self.more]

    def run(self, data: bytes | dict[str, Any]) -> subprocess.CompletedProcess[bytes]:
        """One hook, as the client would start it."""
        given = data if isinstance(data, bytes) else json.dumps(data).encode()
        env = {**os.environ, **self.env}
        return subprocess.run(
            self.command, input=given, capture_output=True, timeout=PATIENCE_S, cwd=self.cwd, env=env
        )

    def answer_to(self, data: dict[str, Any]) -> dict[str, Any]:
        """What the client is told by one hook that says something."""
        ended = self.run(data)
        assert (ended.returncode, ended.stderr) == (0, b"")
        found: dict[str, Any] = json.loads(ended.stdout)
        return found

    def daemons(self) -> list[int]:
        """The processes that judge here."""
        return daemons(self.store)
