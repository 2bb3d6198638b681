"""The starter policy is enforced on framework agents; an agent with ungated tools does not start under `enforcement:
required`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import agents
import framework_bench
import pytest

from proctor.adapters import OpenAIAgentsAdapter
from proctor.policies import parse_policies
from proctor.supervisor import PolicyViolationError, run_once
from tests import coding_agent

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)]


AGENTS = [framework_bench.pydantic_ai, framework_bench.openai_agents, framework_bench.langchain]


@pytest.mark.parametrize("make", AGENTS, ids=lambda made: made.__name__)
class TestFrameworks(coding_agent.CodingAgentChecks):
    """The cost uses the public price of the model."""

    @pytest.fixture
    def cwd(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """The working directory of this process, and so of the agent's tools."""
        folder = tmp_path / "work"
        folder.mkdir()
        monkeypatch.chdir(folder)
        return folder

    @pytest.fixture
    def prepare(self, cwd: Path, make: Any) -> Callable[..., Any]:
        return lambda acts, **how: (make([framework_bench.called(act) for act in acts], **how), "go")


pytest.importorskip("openai", reason="the SDK is not installed: pip install '.[openai-agents]'")

REQUIRED = "{name: p, enforcement: required, on_violation: deny, tool_rules: [{deny: [bash, write]}]}"

MADE = {
    "a computer": lambda: agents.ComputerTool(object()),  # type: ignore[arg-type]
    "a shell where the model is": lambda: agents.ShellTool(environment={"type": "container_auto"}),
    "a search": agents.WebSearchTool,
}


@pytest.mark.anyio
@pytest.mark.parametrize("handed_over", [False, True], ids=["its own", "of an agent it hands over to"])
@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
async def test_an_ungated_tool_is_rejected_if_enforcement_is_required(make: Any, handed_over: bool) -> None:
    """Before the model is called, also if only an agent behind a handoff has the tool."""
    agent = agents.Agent(name="worker", tools=[make()])
    if handed_over:
        agent = agents.Agent(name="first", handoffs=[agent])
    adapter = OpenAIAgentsAdapter(agent)

    with pytest.raises(PolicyViolationError) as raised:
        await run_once(adapter, "go", policies=parse_policies(REQUIRED))

    assert adapter.capabilities.gate == "some"
    assert "required" in str(raised.value)
