"""Supervisors and orchestrators as processes of their own, before the real client and on one store."""

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
"""The client writes its conversation when it likes; nothing announces it."""
PROGRAMS = Path(__file__).parent / "adapters/agents/claude"


class Program(Process):
    """A process that is spoken to in lines of JSON."""

    def next_line(self) -> dict[str, Any]:
        """Its next line."""
        found: dict[str, Any] = json.loads(self.until("{"))
        return found

    def tell(self, granted: bool, **answer: Any) -> None:
        """Answer what it has shown."""
        self.go_on(json.dumps({"granted": granted, "by": "ana", **answer}))

    def answered(self, granted: bool, **answer: Any) -> dict[str, Any]:
        """What came of an answer."""
        self.tell(granted, **answer)
        return self.next_line()

    def kill_before_its_clients(self) -> None:
        """SIGKILL; returns once what was below it is gone too."""
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
    """Supervisors and orchestrators on one store."""

    def __init__(self, bench: Any, folder: Path) -> None:
        self.bench = bench
        self.path = folder / "runs.db"
        self.folder = folder
        self.programs: list[Program] = []

    def supervisor(self, session: str = "s", run: str = "r1", timeout_s: float = PATIENCE_S) -> Program:
        """A process with one run, of which every call is asked about."""
        policy = {
            "name": "p",
            "on_violation": "deny",
            "approval": {"timeout_s": timeout_s},
            "rules": [{"type": "blocklist", "tools": ["Bash", "Write"], "action": "request_approval"}],
        }
        return self._started("supervising.py", session, run, json.dumps(policy))

    def orchestrator(self, name: str = "inbox") -> Program:
        """A process that shows and answers; those of one name go on from one cursor."""
        return self._started("orchestrator.py", str(self.folder / f"{name}.cursor"))

    def _started(self, program: str, *arguments: str) -> Program:
        env = {**os.environ, **self.bench.env}
        process = Forked(PROGRAMS / program, [str(self.path), *arguments], cwd=self.bench.cwd, env=env)
        self.programs.append(Program(process))
        return self.programs[-1]

    def events(self, session: str = "s") -> list[Event]:
        """The record of a session."""
        return in_store(self.path, lambda store: stored_events(store, session))

    def reaped(self) -> list[str]:
        """The lost runs that were ended."""
        return [run.run_id for run in in_store(self.path, partial(reap, end_orphans=end_orphans))]

    def ran(self, session: str = "s") -> list[dict[str, Any]]:
        """The inputs of the calls that were started."""
        return [event.tool_input for event in self.events(session) if isinstance(event, ToolCallStarted)]

    def until(self, approval_id: str, there: Callable[[StoredApproval], bool]) -> StoredApproval:
        """An approval, once it is as expected."""

        async def look(store: Store) -> StoredApproval | None:
            found = await store.approval(approval_id)
            return found if found is not None and there(found) else None

        return in_store(self.path, lambda store: once(store, look))

    async def until_written(self, words: str) -> None:
        """Wait until the client has written so much of its conversation that this is in it."""
        with anyio.fail_after(PATIENCE_S):
            while not any(words.encode() in file.read_bytes() for file in self._conversations()):
                await anyio.sleep(POLL_S)

    def forget(self) -> None:
        """Have the client's conversations as they are where it was killed before it wrote any."""
        for file in self._conversations():
            file.unlink()

    def _conversations(self) -> list[Path]:
        return list(Path(self.bench.env["CLAUDE_CONFIG_DIR"]).glob("projects/*/*.jsonl"))

    def approval_request(self, session: str) -> ToolApprovalRequested:
        """What a session asks, once it does."""

        async def look(store: Store) -> ToolApprovalRequested | None:
            events = await stored_events(store, session)
            return next((event for event in events if isinstance(event, ToolApprovalRequested)), None)

        return in_store(self.path, lambda store: once(store, look))

    def exists(self, name: str) -> bool:
        """Whether the client's folder has a file."""
        return Path(self.bench.cwd, name).exists()
