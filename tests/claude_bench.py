"""An adapter for the real client with the scripted API that all adapters' tests share."""

import os
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import psutil
import pytest
from supervised import RecordingGate

from proctor.adapters.agents.claude.adapter import ClaudeAdapter
from proctor.adapters.kit import guardian
from proctor.adapters.kit.process_tree import RUN_MARK
from proctor.policies.events import Event, RunCompleted, TurnStarted
from proctor.supervisor.errors import ProviderError
from proctor.supervisor.ports.adapter import Gate, Launch, Provider
from proctor.supervisor.run.provider_session import run_cancel_steps
from proctor.supervisor.run.services import Clock
from proctor.supervisor.testing import damaged_output
from proctor.supervisor.testing.fakes import PATIENCE_S


class Watched:
    """A run that is read to its end in the background; then `ended` is set."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.seen: list[Event] = []
        self.error: Exception | None = None
        self.ended = anyio.Event()
        self.responding = anyio.Event()

    async def read(self) -> None:
        """Read it."""
        try:
            async for event in self.provider.events():
                self.seen.append(event)
                if isinstance(event, TurnStarted):
                    self.responding.set()
        except ProviderError as error:
            self.error = error
        self.ended.set()

    async def cancel(self) -> list[dict[str, Any]]:
        """Run the cancel steps; returns those that were tried, without their durations."""
        tried = await run_cancel_steps(self.provider.cancel_steps(), self.ended, Clock())
        return [{name: found for name, found in step.items() if name != "took_ms"} for step in tried]

    async def interrupt(self) -> None:
        """Cancel it, and check that the client accepted the interrupt and ended its turn."""
        tried = await self.cancel()

        assert tried == [{"rung": "interrupt", "evidence": {"interrupted_by": "ladder"}, "ended": True}]
        assert self.error is None
        assert not any(isinstance(event, RunCompleted) for event in self.seen)


class Pipe:
    """A named pipe on which a command signals that it is running."""

    def __init__(self, path: Path) -> None:
        self._path = path
        os.mkfifo(path)

    def __str__(self) -> str:
        return str(self._path)

    async def heard(self) -> None:
        """Wait until a command has written to it."""
        with anyio.fail_after(PATIENCE_S):
            await anyio.to_thread.run_sync(self._path.read_text, abandon_on_cancel=True)


class ClientBench:
    """Runs of a real client with the test's own gate."""

    def __init__(self) -> None:
        self.run_ids: list[str] = []

    def adapter(self) -> Any:
        """An adapter whose client talks only to the scripted API."""
        raise NotImplementedError

    def launch(self, gate: Gate | None = None, **more: Any) -> Launch:
        """A launch of one run; without a gate every call is allowed."""
        self.run_ids.append(f"run-{uuid.uuid4().hex}")
        details = {"prompt": "go", "session_id": "s", "run_id": self.run_ids[-1], **more}
        return Launch(gate=gate or RecordingGate(), **details)

    async def run(self, gate: Gate | None = None, *, adapter: Any = None, **more: Any) -> list[Event]:
        """All events that the client reports of one run."""
        with anyio.fail_after(PATIENCE_S):
            async with (adapter or self.adapter()).open(self.launch(gate, **more)) as provider:
                return [event async for event in provider.events()]

    @asynccontextmanager
    async def watched(self, gate: Gate | None = None, *, adapter: Any = None, **more: Any) -> AsyncIterator[Watched]:
        """A run that is read in the background, and cancelled at exit."""
        with anyio.fail_after(PATIENCE_S):
            async with (adapter or self.adapter()).open(self.launch(gate, **more)) as provider:
                run = Watched(provider)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(run.read)
                    yield run
                    tasks.cancel_scope.cancel()

    def survivors(self) -> list[int]:
        """Processes of any run of this bench that are still alive."""
        return self.marked(*self.run_ids)

    def client(self) -> psutil.Process:
        """The client of the only run of this bench, below its guardian."""
        marked = self.survivors()
        below = psutil.Process().children(recursive=True)
        return next(one for one in below if one.pid in marked and guardian.__file__ not in one.cmdline())

    def marked(self, *run_ids: str) -> list[int]:
        """The processes with the mark of one of these runs."""
        return [process.pid for process in psutil.process_iter() if _mark(process) in run_ids]


def _mark(process: psutil.Process) -> str | None:
    try:
        return None if process.status() == psutil.STATUS_ZOMBIE else process.environ().get(RUN_MARK)
    except psutil.Error:
        return None


class Bench(ClientBench):
    """An adapter for the real client."""

    def __init__(self, api: Any, env: dict[str, str], cwd: Path) -> None:
        super().__init__()
        self.api = api
        self.env = env
        self.cwd = cwd

    def adapter(self, *tools: str, **options: Any) -> ClaudeAdapter:
        """An adapter that offers these tools and reads no settings."""
        env = {**self.env, **options.pop("env", {})}
        options.setdefault("model", "claude-sonnet-4-5")
        options.setdefault("cwd", self.cwd)
        return ClaudeAdapter({"setting_sources": [], **options}, tools=tools or ("Bash",), env=env)

    def stand_in(self, behind: Callable[[list[str]], list[str]]) -> str:
        """The real client behind a program that modifies its pipes: see `damaged_output`."""
        return str(damaged_output.as_program(self.cwd.parent / "client", behind([real_client()])))


def real_client() -> str:
    """The path of the client in the SDK."""
    import claude_agent_sdk

    return str(Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude")


@pytest.fixture
def pipe(tmp_path: Path) -> Pipe:
    """A pipe on which a command signals that it is running."""
    return Pipe(tmp_path / "up")


@pytest.fixture
def anyio_backend() -> str:
    """One backend: the conformance suite runs every end on both."""
    return "trio"


@pytest.fixture
def bench(api: Any, hermetic: dict[str, str], tmp_path: Path) -> Bench:
    """The real client with the scripted API."""
    return Bench(api, hermetic, tmp_path / "work")
