"""The shipped conformance suite of the Adapter port, on a fallback whose first client cannot be started."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from proctor.adapters import FallbackAdapter, ScriptedAdapter
from proctor.policies.events.run_context import Usage
from proctor.supervisor import ProviderUnavailableError
from proctor.supervisor.testing import FakeAdapter
from proctor.supervisor.testing.adapter_fixture import Agent
from proctor.supervisor.testing.suites import AdapterConformance

STAY = "trap '' TERM HUP; setsid sleep 73011 & (setsid sleep 73011 &); touch up; sleep 73011"


@pytest.mark.anyio
class TestFallbackAdapter(AdapterConformance):
    """A script behind a client that is not there."""

    row: str | None = None
    without = frozenset({"delegating", "offering", "mixing"})

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        """An empty workspace."""
        self.workspace = tmp_path

    def making(self, *files: str, together: bool = False) -> Agent:
        """A shell command for each file."""
        calls = [{"call": "bash", "input": {"command": f"touch {file}"}} for file in files]
        return self._agent([{"parallel": calls}] if together else calls)

    def staying(self) -> Agent:
        """A command that never ends."""
        return self._agent([{"call": "bash", "input": {"command": STAY}}])

    def silent(self) -> Agent:
        """Silence for ever."""
        return self._agent([{"say": "hm"}, {"silence": "forever"}])

    def using(self) -> tuple[Agent, Usage]:
        """Deltas, then a cumulative report."""
        steps = [
            {"usage": {"input_tokens": 10, "output_tokens": 2, "cost_usd": 0.5}},
            {"usage": {"scope": "cumulative", "input_tokens": 20, "output_tokens": 2, "cache_read_tokens": 4}},
        ]
        return self._agent(steps), Usage(input_tokens=20, output_tokens=2, cache_read_tokens=4, cost_usd=0.5)

    def erring(self) -> Agent:
        """A command that fails."""
        return self._agent([{"call": "bash", "input": {"command": "exit 3"}}])

    def failing(self) -> Agent:
        """A script that fails after something ran."""
        return self._agent([{"call": "bash", "input": {"command": "true"}}, {"fail": "no more"}])

    def _agent(self, steps: Sequence[object]) -> Agent:
        script = ScriptedAdapter({"steps": [*steps]}, workspace=self.workspace)
        capabilities = script.capabilities
        missing = ProviderUnavailableError("it is not installed")
        return Agent(FallbackAdapter([FakeAdapter([], unavailable=missing, capabilities=capabilities), script]))
