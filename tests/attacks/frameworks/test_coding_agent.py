"""The policy to begin with holds on agents of frameworks; what one runs unasked is not started where it may not."""

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
    """By the public price of the model."""

    @pytest.fixture
    def cwd(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """The folder in which this process, and so the agent's tools, work."""
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
async def test_a_tool_that_asks_nobody_is_refused_where_enforcement_is_required(make: Any, handed_over: bool) -> None:
    """Before the model is asked anything; also where only an agent behind a handoff has it."""
    agent = agents.Agent(name="worker", tools=[make()])
    if handed_over:
        agent = agents.Agent(name="first", handoffs=[agent])
    adapter = OpenAIAgentsAdapter(agent)

    with pytest.raises(PolicyViolationError) as refused:
        await run_once(adapter, "go", policies=parse_policies(REQUIRED))

    assert adapter.capabilities.gate == "some"
    assert "required" in str(refused.value)
