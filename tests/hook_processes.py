"""Hooks of interactive clients without the clients: their inputs for a call, and the daemon."""

import json
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil

from proctor.adapters.hooks.clients import CLIENTS
from proctor.adapters.hooks.daemon_client import DAEMON
from proctor.adapters.hooks.decider import HookDecider, HookOptions
from proctor.adapters.hooks.record import store_id
from proctor.adapters.hooks.settings import command
from proctor.supervisor.testing.fakes import PATIENCE_S
from tests.stored_rows import stored_rows


def daemons(store: Path) -> list[int]:
    """The hook daemons of this store."""
    found = ((process.pid, process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"]))
    return [pid for pid, words in found if DAEMON in words and str(store) in words]


def wait_for_hooks(store: Path) -> None:
    """Wait until no hook of this store is waiting for a decision: a client may exit before its last one."""
    running = psutil.process_iter(["cmdline"])
    asking = [one for one in running if str(store) in (words := one.info["cmdline"] or ()) and DAEMON not in words]
    _, left = psutil.wait_procs(asking, timeout=PATIENCE_S)
    assert not left


def end_daemons(store: Path) -> None:
    """End the hook daemons of this store."""
    for pid in daemons(store):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def recorded(store: Path, *types: str) -> list[str]:
    """The types of the stored events, in order; those of `types` if given."""
    rows = stored_rows(store, "SELECT type FROM events ORDER BY position")
    return [name for (name,) in rows if not types or name in types]


BASH: Final = {
    **{"claude": "Bash", "codex": "Bash", "copilot": "bash"},
    **{"cursor": "Shell", "gemini": "run_shell_command", "opencode": "bash"},
}
"""Each client's name for its shell."""


def call_of(
    agent: str, id: str, tool: str | None = None, tool_input: Any = None, *, ran: bool = False, session: str = "s"
) -> dict[str, Any]:
    """A call about to run, or one that has, in the client's form; `ls` in its shell by default."""
    kind = "completed" if ran else "call"
    event = next(name for name, of_kind in CLIENTS[agent].events.items() if of_kind == kind)
    name, given = tool or BASH[agent], {"command": "ls"} if tool_input is None else tool_input
    if agent == "opencode":
        return {"event": event, "session": session, "tool": name, "call": id, "args": given}
    call: dict[str, Any] = {"hook_event_name": event, "tool_name": name, "tool_input": given}
    call["conversation_id" if agent == "cursor" else "session_id"] = session
    return call | ({"tool_use_id": id} if agent in ("claude", "codex", "cursor") else {})


def decider_for(folder: Path, policy: str, **more: Any) -> HookDecider:
    """A decider in this process, with this policy and a store in the folder."""
    file, store = folder / "policy.yaml", folder / "store.db"
    file.write_text(policy)
    return HookDecider(HookOptions(name="one", policies=(str(file),), store=store, store_id=store_id(store), **more))


class HookProcesses:
    """A hook's command line in a folder, as the client runs it, and its daemon."""

    def __init__(self, folder: Path, policy: str = "{name: secret}", *, agent: str = "claude") -> None:
        self.folder = folder
        self.policy = folder / "policy.yaml"
        self.policy.write_text(policy)
        self.store = folder / "store.db"
        self.agent = agent
        self._words = command([self.policy], self.store)
        self.more: tuple[str, ...] = ()
        self.cwd: Path | None = None
        self.env: dict[str, str] = {}

    @property
    def place(self) -> Path:
        """The socket's folder."""
        return Path(self.command[4])

    @property
    def command(self) -> list[str]:
        """The hook's command line, as `settings` writes it."""
        of_agent = [] if self.agent == "claude" else ["--agent", self.agent]
        return [*self._words[:5], *of_agent, *self._words[5:], *self.more]

    def run(self, data: bytes | dict[str, Any], *before: str) -> subprocess.CompletedProcess[bytes]:
        """Run one hook as the client would start it, or as a program before it does."""
        given = data if isinstance(data, bytes) else json.dumps(data).encode()
        words, env = [*before, *self.command], {**os.environ, **self.env}
        return subprocess.run(words, input=given, capture_output=True, timeout=PATIENCE_S, cwd=self.cwd, env=env)

    def allows(self, data: bytes | dict[str, Any], *before: str) -> bool:
        """Whether the client would continue; asserts that a denial is in a form that it obeys."""
        ended = self.run(data, *before)
        silent = not ended.stdout or (self.agent != "claude" and b"deny" not in ended.stdout)
        if ended.returncode == 0 and silent:
            return True
        assert ended.returncode == 2 or b"deny" in ended.stdout
        return False

    def answer_to(self, data: dict[str, Any]) -> dict[str, Any]:
        """The client's answer from one hook."""
        ended = self.run(data)
        assert (ended.returncode, ended.stderr) == (0, b"")
        found: dict[str, Any] = json.loads(ended.stdout)
        return found

    def daemons(self) -> list[int]:
        """The active daemons."""
        return daemons(self.store)
