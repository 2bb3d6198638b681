"""The shipped conformance suite of the Adapter port, on an agent that asks before every call."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from proctor.adapters.acp import AcpAdapter, AgentTraits
from proctor.policies.calls import Usage
from proctor.supervisor.testing.adapter_conformance import AdapterConformance, Agent

STAY = "trap '' TERM HUP; setsid sleep 73002 & (setsid sleep 73002 &); touch up; sleep 73002"
USED = {"inputTokens": 10, "outputTokens": 2, "cachedReadTokens": 4, "totalTokens": 16}
TRAITS = AgentTraits(gate="all", usage="at_end", reports_cost=True)
AGENT = Path(__file__).parent / "scripted_agent.py"


@pytest.mark.anyio
class TestAcpAdapter(AdapterConformance):
    """Commands, each asked about."""

    has_client = True

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        """An empty workspace."""
        self.workspace = tmp_path

    def making(self, *files: str, together: bool = False) -> Agent:
        """A command for each file."""
        calls: list[dict[str, Any]] = [{"call": file, "run": f"touch {file}"} for file in files]
        return self._agent([{"together": calls}] if together else calls)

    def staying(self) -> Agent:
        """A command that never ends."""
        return self._agent([{"call": "stay", "run": STAY}])

    def silent(self) -> Agent:
        """Silence for ever."""
        return self._agent([{"say": "hm"}, {"silence": True}])

    def using(self) -> tuple[Agent, Usage]:
        """Tokens with the answer, the cost before."""
        cost = {"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": {"amount": 0.5, "currency": "USD"}}
        steps: list[dict[str, Any]] = [{"update": cost}, {"stop": "end_turn", "fields": {"usage": USED}}]
        return self._agent(steps), Usage(input_tokens=14, output_tokens=2, cache_read_tokens=4, cost_usd=0.5)

    def failing(self) -> Agent:
        """An agent that dies."""
        return self._agent([{"say": "x"}, {"exit": 3}])

    def _agent(self, steps: list[dict[str, Any]]) -> Agent:
        command = [sys.executable, str(AGENT), json.dumps({"prompts": [steps]})]
        return Agent(AcpAdapter(command, cwd=self.workspace, traits=TRAITS))
