"""AcpAdapter: any agent that speaks the Agent Client Protocol."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

from proctor.policies.events.run_context import Capabilities
from proctor.supervisor.errors import ProviderError, ProviderUnavailableError, UnknownSessionError, UsageError
from proctor.supervisor.ports.adapter import Launch

from ...kit.client_process import Workspace, start_client
from ...kit.client_tools import tool_capabilities, tools_of
from ...kit.launch_options import NoLaunchOptions
from ...kit.process_tree import end_orphans
from ...kit.provider import helpers
from .connection import KNOWN, AcpConnection, AgentTraits, agent_of, can_load, server_parameters, switched
from .session import UNASKED_S, AcpSession
from .translation import CostMeter

START_S: Final = 60.0
_MOST_COSTS: Final = 1024
"""Of how many sessions, the latest, an adapter knows what they cost; of another, the first report stands for it."""


class AcpAdapter(NoLaunchOptions):
    """Runs prompts with an agent that speaks the Agent Client Protocol on its standard input and output.

    The agent decides which calls it asks about: the gate holds those; calls that it makes without asking are reported
    and evaluated. See `AgentTraits` for the differences between agents.

    Args:
        command: starts the agent: `["opencode", "acp"]`, `["gemini", "--acp"]`.
        name: the adapter's name in the event log.
        cwd: the folder to work in; the current one if not given.
        env: the agent's whole environment; this process's if not given.
        model: the model to use, one the agent offers; the agent's own choice if not given.
        mode: the mode to work in, one the agent offers; the agent's own choice if not given.
        mcp_servers: servers the agent is to use, each with a `name` and a `command` or a `url`.
        traits: how the agent behaves; by default what is known of this agent.
        start_s: seconds the agent may take for each step of its start.
        unasked_s: seconds a call may be in progress without a question before it counts as running unasked.

    Raises:
        UsageError: an empty command, or something that is not an MCP server.
    """

    end_orphans = staticmethod(end_orphans)

    def __init__(
        self,
        command: Sequence[str],
        *,
        name: str = "acp",
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        model: str | None = None,
        mode: str | None = None,
        mcp_servers: Sequence[Mapping[str, Any]] = (),
        traits: AgentTraits | None = None,
        start_s: float = START_S,
        unasked_s: float = UNASKED_S,
    ) -> None:
        if isinstance(command, str) or not isinstance(command, Sequence) or not command:
            raise UsageError(f"command `{command}` is not a list of words, as `['opencode', 'acp']` is")
        self.name = name
        self._command = [str(word) for word in command]
        self._workspace = Workspace(cwd, env)
        self._model = model
        self._mode = mode
        self._servers = server_parameters(mcp_servers)
        agent = agent_of(self._command)
        self._traits = traits or KNOWN.get(agent, AgentTraits())
        self._tools = tools_of(agent)
        self._start_s = start_s
        self._unasked_s = unasked_s
        self._costs: dict[str, CostMeter] = {}

    @property
    def capabilities(self) -> Capabilities:
        """The agent's known capabilities; whether it resumes sessions, it reports only at its start."""
        return Capabilities(
            gate=self._traits.gate,
            deny_ends_turn=self._traits.deny_ends_turn,
            usage=self._traits.usage,
            reports_cost=self._traits.reports_cost,
            cancel_kills_children=True,
            resume=self._traits.loads,
            model=self._model,
            **self._workspace.described(),
            **tool_capabilities(self._tools, None),
        )

    async def prepare(self) -> None:
        """Check that the agent and the folder exist. Raises ProviderUnavailableError."""
        self._executable()
        self._workspace.check_folder()

    @asynccontextmanager
    async def open(self, launch: Launch) -> AsyncIterator[AcpSession]:
        """Start the agent with the prompt. Raises ProviderError, ProviderUnavailableError, UsageError."""
        if launch.fork:
            raise UsageError(f"`{self.name}` cannot fork a session")
        cost = self._cost(launch.resume)
        session = AcpSession(launch, cost=cost, traits=self._traits, unasked_s=self._unasked_s)
        async with (
            start_client(
                f"`{self.name}`",
                [self._executable(), *self._command[1:]],
                cwd=self._workspace.folder,
                env=switched(self._workspace.environment, self._traits),
                mark=launch.mark,
            ) as process,
            helpers() as tasks,
        ):
            connection = AcpConnection(process, session, start_s=self._start_s)
            tasks.start_soon(process.read_stderr)
            tasks.start_soon(process.end_orphans)
            session.attach(connection, tasks)
            tasks.start_soon(session.listen)
            session_id, metadata = await self._open_session(connection, launch.resume)
            if launch.resume is not None:
                await session.skip_history(session_id, timeout_s=self._start_s)
            self._keep_cost(session_id, cost)
            session.begin(session_id, metadata)
            yield session

    async def _open_session(self, connection: AcpConnection, resume: str | None) -> tuple[str, dict[str, Any]]:
        greeting = await connection.greet()
        self._traits = msgspec.structs.replace(self._traits, loads=can_load(greeting))
        if resume is not None and not self._traits.loads:
            raise UnknownSessionError(f"{connection.process.name} cannot resume a session")
        place = {"cwd": str(self._workspace.folder), "mcpServers": self._servers}
        try:
            if resume is None:
                taken = await connection.new_session(place)
            else:
                taken = await connection.load_session(resume, place)
        except ProviderUnavailableError as error:
            raise _with_ways_to_log_in(error, greeting) from error
        agent_info = greeting.get("agentInfo")
        agent = agent_info if isinstance(agent_info, dict) else {}
        metadata = {
            "agent": agent.get("name"),
            "agent_version": agent.get("version"),
            "model": await connection.choose(taken, "model", self._model),
            "mode": await connection.choose(taken, "mode", self._mode),
            "cwd": str(self._workspace.folder),
        }
        return str(taken["sessionId"]), metadata

    def _cost(self, resume: str | None) -> CostMeter:
        if resume is None:
            return CostMeter(0.0)
        meter = self._costs.get(resume)
        return CostMeter(meter.seen if meter is not None else None)

    def _keep_cost(self, session_id: str, cost: CostMeter) -> None:
        self._costs.pop(session_id, None)
        self._costs[session_id] = cost
        while len(self._costs) > _MOST_COSTS:
            del self._costs[next(iter(self._costs))]

    def _executable(self) -> str:
        return self._workspace.program(self._command[0], "install the agent or give its path")


def _with_ways_to_log_in(error: ProviderError, greeting: Mapping[str, Any]) -> ProviderUnavailableError:
    listed = greeting.get("authMethods")
    methods = [method for method in listed if isinstance(method, dict)] if isinstance(listed, list) else []
    ways = "; ".join(str(method.get("description") or method.get("name")) for method in methods)
    message = f"{error}; the agent says how: {ways}" if ways else str(error)
    return ProviderUnavailableError(message, details=error.details)
