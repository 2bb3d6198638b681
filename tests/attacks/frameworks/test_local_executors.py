"""What the OpenAI Agents SDK runs without asking the gate is not started under a policy that requires one."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.adapters import OpenAIAgentsAdapter
from proctor.policies import parse_policies
from proctor.supervisor import PolicyViolationError, run_once

pytest.importorskip("openai", reason="the SDK is not installed: pip install '.[openai-agents]'")
import agents

REQUIRED = "{name: p, enforcement: required, on_violation: deny, tool_rules: [{deny: [bash, write]}]}"


@pytest.fixture
def anyio_backend() -> str:
    """The SDK runs on asyncio only."""
    return "asyncio"


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
