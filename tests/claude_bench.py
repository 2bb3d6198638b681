"""An adapter for the real client, before the scripted API that the tests of all adapters share."""

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from supervised import RecordingGate

from proctor.adapters.agents.claude.adapter import ClaudeAdapter
from proctor.adapters.kit import guardian
from proctor.adapters.kit.process_tree import RUN_MARK
from proctor.policies import Event
from proctor.supervisor.ports.adapter import Gate, Launch
from proctor.supervisor.testing import damaged_output
from proctor.supervisor.testing.fakes import PATIENCE_S


class ClientBench:
    """Runs of a real client with a gate of the test's own."""

    def adapter(self) -> Any:
        """An adapter whose client talks to the scripted API only."""
        raise NotImplementedError

    def launch(self, gate: Gate | None = None, **more: Any) -> Launch:
        """A launch of one run; without a gate every call is allowed."""
        details = {"prompt": "go", "session_id": "s", "run_id": f"run-{uuid.uuid4().hex}", **more}
        return Launch(gate=gate or RecordingGate(), **details)

    async def run(self, gate: Gate | None = None, *, adapter: Any = None, **more: Any) -> list[Event]:
        """Everything the client reports of one run."""
        with anyio.fail_after(PATIENCE_S):
            async with (adapter or self.adapter()).open(self.launch(gate, **more)) as provider:
                return [event async for event in provider.events()]

    def marked(self, *run_ids: str) -> list[int]:
        """The processes that carry the mark of one of these runs."""
        return [process.pid for process in psutil.process_iter() if _mark(process) in run_ids]


def _mark(process: psutil.Process) -> str | None:
    try:
        return None if process.status() == psutil.STATUS_ZOMBIE else process.environ().get(RUN_MARK)
    except psutil.Error:
        return None


class Bench(ClientBench):
    """An adapter for the real client."""

    def __init__(self, api: Any, env: dict[str, str], cwd: Path) -> None:
        self.api = api
        self.env = env
        self.cwd = cwd

    def adapter(self, *tools: str, **options: Any) -> ClaudeAdapter:
        """An adapter that offers these tools and reads no settings."""
        env = {**self.env, **options.pop("env", {})}
        options.setdefault("model", "claude-sonnet-4-5")
        options.setdefault("cwd", self.cwd)
        return ClaudeAdapter({"setting_sources": [], **options}, tools=tools or ("Bash",), env=env)

    def client(self, run_id: str) -> psutil.Process:
        """The client of a run, which is below its guardian."""
        marked = self.marked(run_id)
        below = psutil.Process().children(recursive=True)
        return next(one for one in below if one.pid in marked and guardian.__file__ not in one.cmdline())

    def stand_in(self, behind: Callable[[list[str]], list[str]]) -> str:
        """The real client behind a program that does something to its pipes: see `damaged_output`."""
        return str(damaged_output.as_program(self.cwd.parent / "client", behind([real_client()])))


def real_client() -> str:
    """The path of the client that the SDK carries."""
    import claude_agent_sdk

    return str(Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude")


@pytest.fixture
def anyio_backend() -> str:
    """The suite runs on asyncio, and every ending on both."""
    return "trio"


@pytest.fixture
def bench(api: Any, hermetic: dict[str, str], tmp_path: Path) -> Bench:
    """The real client against the scripted API."""
    return Bench(api, hermetic, tmp_path / "work")
