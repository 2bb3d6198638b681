"""A real agent with the framework's own OpenAI client, and a scripted loopback API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from acp_bench import ModelAPI, scene

from proctor.policies import Deny, Policy
from proctor.supervisor import run_once

pytest.importorskip("pydantic_ai", reason="pydantic-ai is not installed: pip install '.[pydantic-ai]'")
pytest.importorskip("openai", reason="the client is not installed: pip install 'pydantic-ai-slim[openai]'")
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from proctor.adapters import PydanticAIAdapter

pytestmark = pytest.mark.anyio


@pytest.fixture
def api() -> Iterator[ModelAPI]:
    """The scripted API, serving."""
    served = ModelAPI()
    yield served
    served.close()


@pytest.fixture
def adapter(api: ModelAPI, tmp_path: Path) -> PydanticAIAdapter:
    """An agent with a tool that writes files."""
    agent = Agent(OpenAIChatModel("gpt-4o", provider=OpenAIProvider(base_url=f"{api.url}/v1", api_key="none")))

    @agent.tool_plain
    def make(path: str) -> str:
        (tmp_path / path).touch()
        return path

    return PydanticAIAdapter(agent, narrow=False)


async def test_a_run_over_http_is_gated_and_priced(api: ModelAPI, adapter: PydanticAIAdapter, tmp_path: Path) -> None:
    """The model gets the text of the denial; tokens and their cost are counted."""
    calls = [["make", {"path": path}] for path in "ab"]
    policy = Policy(name="p", tool_rules=(Deny(("make",), action="deny"),))

    result = await run_once(adapter, scene({"calls": calls}, {"text": "done"}), policy=policy)

    tool_results = [message["content"] for message in api.requests[1]["messages"] if message["role"] == "tool"]
    assert tool_results == ["Tool 'make' is not available in this context."] * 2
    assert (result.output, result.usage.total_tokens) == ("done", 240)
    assert result.cost_usd > 0
    assert adapter.capabilities.model == "gpt-4o"
