"""An agent that follows a script, with calls that really run: for demonstrations, examples and tests."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from proctor.policies.stream.calls import Capabilities
from proctor.supervisor.errors import ProviderUnavailableError, UsageError
from proctor.supervisor.ports.adapters import Launch, Provider

from ...kit.event_stream import EventStream
from ...kit.launch_options import NoLaunchOptions
from ...kit.processes.commands import Subprocesses
from ...kit.processes.remains import end_remains
from ...kit.task_provider import TaskProvider, at_work
from .agent import ScriptedAgent
from .reading import ScriptSource, read_script
from .tools import BUILT_IN, Tool, Toolbox, check_tools, write_file


class ScriptedAdapter(NoLaunchOptions):
    """Runs a script as an agent. The prompt is recorded and otherwise ignored.

    Args:
        script: a path, YAML text, a mapping or a Script; see docs/agents/scripted.md.
        tools: functions by name, called with the call's input as keyword arguments, sync or async.
        gated: ask the gate before every call; False runs calls at once and only reports them.
        workspace: directory for commands and files; if left out, each run gets a new one, which is removed after it.
        command_timeout_s: the most seconds a shell command may take.

    Raises:
        UsageError: the script or an argument makes no sense; lists every problem.
    """

    name = "scripted"
    end_remains = staticmethod(end_remains)

    def __init__(
        self,
        script: ScriptSource,
        *,
        tools: Mapping[str, Tool] | None = None,
        gated: bool = True,
        workspace: str | Path | None = None,
        command_timeout_s: float = 60.0,
    ) -> None:
        if not command_timeout_s > 0:
            raise UsageError(f"`command_timeout_s` must be above 0, not {command_timeout_s}")
        self.script = read_script(script)
        self._tools = check_tools(tools or {})
        self._gated = gated
        self._workspace = None if workspace is None else Path(workspace)
        self._command_timeout_s = command_timeout_s

    @property
    def capabilities(self) -> Capabilities:
        """What a script can be held to; its tools are the ones it lists."""
        offered = self.script.tools or tuple(dict.fromkeys((*BUILT_IN, *self._tools)))
        return Capabilities(
            gate="all" if self._gated else "none",
            rewrite=self._gated,
            usage="per_turn",
            reports_cost=True,
            cancel_kills_children=True,
            tools=offered,
            model=self.script.model,
        )

    async def prepare(self) -> None:
        """Check that the workspace is there. Raises ProviderUnavailableError."""
        if self._workspace is not None and not self._workspace.is_dir():
            place = self._workspace
            raise ProviderUnavailableError(f"workspace `{place}` is not a directory; create it first")

    @asynccontextmanager
    async def open(self, launch: Launch) -> AsyncIterator[Provider]:
        """Play the script; leaving ends it and every process it started."""
        with _directory(self._workspace) as workspace:
            for path, content in self.script.files.items():
                write_file(workspace / path, content)
            commands = Subprocesses(launch.mark)
            tools = Toolbox(workspace, commands, self._tools, timeout_s=self._command_timeout_s)
            stream = EventStream()
            agent = ScriptedAgent(self.script, stream, tools, launch.gate if self._gated else None)
            async with at_work(TaskProvider(stream, launch, commands), agent.play) as provider:
                yield provider


@contextmanager
def _directory(given: Path | None) -> Iterator[Path]:
    """The given directory, or a new one that is removed at the end."""
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="proctor-", ignore_cleanup_errors=True) as made:
        yield Path(made)
