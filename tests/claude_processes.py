"""Supervisors and approving processes with the real client, on one store."""

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import psutil

from proctor.adapters.kit.process_tree import end_orphans
from proctor.policies.events import Event, ToolApprovalRequested, ToolCallStarted
from proctor.supervisor import Store, StoredApproval
from proctor.supervisor.control.ownership import reap
from proctor.supervisor.testing.fakes import PATIENCE_S
from tests.forked_programs import Forked
from tests.owning_processes import Process
from tests.stored_rows import in_store, once, stored_events

POLL_S = 0.02
"""The client saves its conversation at any time, without notice."""
PROGRAMS = Path(__file__).parent / "adapters/agents/claude"


class Program(Process):
    """A process that reads and writes lines of JSON."""

    def next_line(self) -> dict[str, Any]:
        """Its next line."""
        found: dict[str, Any] = json.loads(self.until("{"))
        return found

    def send(self, granted: bool, **answer: Any) -> None:
        """Answer its request."""
        self.go_on(json.dumps({"granted": granted, "by": "ana", **answer}))

    def answered(self, granted: bool, **answer: Any) -> dict[str, Any]:
        """The result of an answer."""
        self.send(granted, **answer)
        return self.next_line()

    def kill_before_its_clients(self) -> None:
        """SIGKILL; returns once its child processes are gone too."""
        clients = psutil.Process(self.process.pid).children(recursive=True)
        self.kill()
        assert not psutil.wait_procs(clients, PATIENCE_S)[1]

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.rest()
        with self.process:  # waits, and closes its pipes
            pass


class ClaudeProcesses:
    """Supervisors and approving processes on one store."""

    def __init__(self, bench: Any, folder: Path) -> None:
        self.bench = bench
        self.path = folder / "runs.db"
        self.folder = folder
        self.programs: list[Program] = []

    def supervisor(self, session: str = "s", run: str = "r1", timeout_s: float = PATIENCE_S) -> Program:
        """A process with one run, whose every call needs approval."""
        policy = {
            "name": "p",
            "on_violation": "deny",
            "approval": {"timeout_s": timeout_s},
            "rules": [{"type": "blocklist", "tools": ["Bash", "Write"], "action": "request_approval"}],
        }
        return self._started("supervising.py", session, run, json.dumps(policy))

    def orchestrator(self, name: str = "inbox") -> Program:
        """A process that shows requests and answers them; those of one name share a cursor."""
        return self._started("orchestrator.py", str(self.folder / f"{name}.cursor"))

    def _started(self, program: str, *arguments: str) -> Program:
        env = {**os.environ, **self.bench.env}
        process = Forked(PROGRAMS / program, [str(self.path), *arguments], cwd=self.bench.cwd, env=env)
        self.programs.append(Program(process))
        return self.programs[-1]

    def events(self, session: str = "s") -> list[Event]:
        """The events of a session."""
        return in_store(self.path, lambda store: stored_events(store, session))

    def reaped(self) -> list[str]:
        """The lost runs that were ended."""
        return [run.run_id for run in in_store(self.path, partial(reap, end_orphans=end_orphans))]

    def ran(self, session: str = "s") -> list[dict[str, Any]]:
        """The inputs of the started calls."""
        return [event.tool_input for event in self.events(session) if isinstance(event, ToolCallStarted)]

    def until(self, approval_id: str, there: Callable[[StoredApproval], bool]) -> StoredApproval:
        """An approval, once it is as expected."""

        async def look(store: Store) -> StoredApproval | None:
            found = await store.approval(approval_id)
            return found if found is not None and there(found) else None

        return in_store(self.path, lambda store: once(store, look))

    async def until_written(self, words: str) -> None:
        """Wait until this is in the client's saved conversation."""
        with anyio.fail_after(PATIENCE_S):
            while not any(words.encode() in file.read_bytes() for file in self._conversations()):
                await anyio.sleep(POLL_S)

    def forget(self) -> None:
        """Reset the client's conversations to the state before it saved any."""
        for file in self._conversations():
            file.unlink()

    def _conversations(self) -> list[Path]:
        return list(Path(self.bench.env["CLAUDE_CONFIG_DIR"]).glob("projects/*/*.jsonl"))

    def approval_request(self, session: str) -> ToolApprovalRequested:
        """The approval request of a session, once there is one."""

        async def look(store: Store) -> ToolApprovalRequested | None:
            events = await stored_events(store, session)
            return next((event for event in events if isinstance(event, ToolApprovalRequested)), None)

        return in_store(self.path, lambda store: once(store, look))

    def exists(self, name: str) -> bool:
        """Whether the client's folder has a file."""
        return Path(self.bench.cwd, name).exists()
