"""The shipped conformance suite for adapters, on a scripted ACP agent."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from proctor.adapters.agents.acp.adapter import AcpAdapter
from proctor.adapters.agents.acp.connection import AgentTraits
from proctor.policies.events.run_context import Usage
from proctor.supervisor.testing import damaged_output
from proctor.supervisor.testing.adapter_fixture import AdapterChecks, Agent
from proctor.supervisor.testing.adapter_gate import GatingChecks, RefusingChecks, ShowingChecks, SupervisingChecks
from proctor.supervisor.testing.adapter_lifecycle import CancellingChecks, CrashingChecks
from proctor.supervisor.testing.suites import AdapterConformance

STAY = "trap '' TERM HUP; setsid sleep 73002 & (setsid sleep 73002 &); touch up; sleep 73002"
USED = {"inputTokens": 10, "outputTokens": 2, "cachedReadTokens": 4, "totalTokens": 16}
COMMAND = [sys.executable, str(Path(__file__).parent / "scripted_agent.py")]


class ScriptedAgent(AdapterChecks):
    """Its calls are commands; it asks about each."""

    has_client = True
    without = frozenset({"delegating", "offering", "using"})
    traits: AgentTraits | None = None

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.workspace = tmp_path

    def making(self, *files: str, together: bool = False) -> Agent:
        return self._agent(self._commands(*files, together=together))

    def erring(self) -> Agent:
        return self._agent([{"call": "bad", "run": "exit 3"}])

    def staying(self) -> Agent:
        return self._agent([{"call": "stay", "run": STAY}])

    def silent(self) -> Agent:
        return self._agent([{"say": "hm"}, {"silence": True}])

    def failing(self) -> Agent:
        return self._agent([{"say": "x"}, {"exit": 3}])

    def garbling(self, *files: str) -> Agent:
        return self._agent(self._commands(*files), damaged_output.garbled(COMMAND))

    def truncating(self, *, lives: bool = False) -> Agent:
        return self._agent(self._commands("alpha"), damaged_output.cut(COMMAND, "tool_call", lives=lives))

    def _commands(self, *files: str, together: bool = False) -> list[dict[str, Any]]:
        calls: list[dict[str, Any]] = [{"call": file, "run": f"touch {file}"} for file in files]
        return [{"together": calls}] if together else calls

    def _agent(self, steps: list[dict[str, Any]], command: Sequence[str] = COMMAND) -> Agent:
        started = [*command, json.dumps({"prompts": [steps]})]
        return Agent(AcpAdapter(started, cwd=self.workspace, traits=self.traits))


@pytest.mark.anyio
class TestAcpAdapter(ScriptedAgent, AdapterConformance):
    """An unknown agent, which reads files unasked."""

    row = "acp"

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    def mixing(self, file: str) -> Agent:
        return self._agent([{"call": "look", "kind": "read", "asks": False}, *self._commands(file)])

    def delegating(self, file: str) -> Agent:
        inside = {"_meta": {"anyName": {"parentToolUseId": "task"}}}
        return self._agent([{"call": "task"}, {**self._commands(file)[0], "fields": inside}])


@pytest.mark.anyio
class TestAskingAcpAgent(
    ScriptedAgent, GatingChecks, RefusingChecks, CancellingChecks, CrashingChecks, ShowingChecks, SupervisingChecks
):
    """An agent known to ask before every call and to report its usage; on the second backend."""

    traits = AgentTraits(gate="all", usage="at_end", reports_cost=True)

    def using(self) -> tuple[Agent, Usage]:
        """The tokens come with the answer, the cost before it."""
        cost = {"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": {"amount": 0.5, "currency": "USD"}}
        steps: list[dict[str, Any]] = [{"update": cost}, {"stop": "end_turn", "fields": {"usage": USED}}]
        return self._agent(steps), Usage(input_tokens=14, output_tokens=2, cache_read_tokens=4, cost_usd=0.5)
