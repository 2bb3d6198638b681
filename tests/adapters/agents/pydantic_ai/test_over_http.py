"""A real agent with the framework's own OpenAI client, over a loopback API of that form."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import loopback
import pytest

from proctor.policies import Deny, Policy
from proctor.supervisor import run_once

pytest.importorskip("pydantic_ai", reason="pydantic-ai is not installed: pip install '.[pydantic-ai]'")
pytest.importorskip("openai", reason="the client is not installed: pip install 'pydantic-ai-slim[openai]'")
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from proctor.adapters import PydanticAIAdapter

pytestmark = pytest.mark.anyio


class ChatAPI:
    """Answers requests with the messages of its script, in order."""

    def __init__(self) -> None:
        self.script: list[dict[str, Any]] = []
        self.bodies: list[dict[str, Any]] = []
        self.url = ""

    def answer(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        given = self.script[len(self.bodies)]
        self.bodies.append(body)
        reason = "tool_calls" if "tool_calls" in given else "stop"
        choice = {"index": 0, "finish_reason": reason, "message": {"role": "assistant", **given}}
        used = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        completion = {"id": "c", "object": "chat.completion", "created": 1, "model": body["model"]}
        return 200, {**completion, "choices": [choice], "usage": used}


@pytest.fixture
def api() -> Iterator[ChatAPI]:
    scripted = ChatAPI()

    def serve(request: loopback.Exchange) -> None:
        status, answer = scripted.answer(request.body)
        request.give(answer, status=status)

    server = loopback.Server(serve)
    scripted.url = f"{server.url}/v1"
    yield scripted
    server.close()


@pytest.fixture
def adapter(api: ChatAPI, tmp_path: Path) -> PydanticAIAdapter:
    """An agent with a tool that makes files."""
    agent = Agent(OpenAIChatModel("gpt-4o", provider=OpenAIProvider(base_url=api.url, api_key="none")))

    @agent.tool_plain
    def make(path: str) -> str:
        (tmp_path / path).touch()
        return path

    return PydanticAIAdapter(agent)


def asking(*paths: str) -> dict[str, Any]:
    """A message that asks for a call for each file."""
    calls = [
        {"id": path, "type": "function", "function": {"name": "make", "arguments": json.dumps({"path": path})}}
        for path in paths
    ]
    return {"content": None, "tool_calls": calls}


async def test_a_run_over_http_is_gated_and_priced(api: ChatAPI, adapter: PydanticAIAdapter, tmp_path: Path) -> None:
    """The refused call's text goes to the model; tokens and their cost are counted."""
    api.script = [asking("a", "b"), {"content": "done"}]
    policy = Policy(name="p", tool_rules=(Deny(("make",), action="deny"),))

    result = await run_once(adapter, "go", policy=policy)

    tool_results = [message["content"] for message in api.bodies[1]["messages"] if message["role"] == "tool"]
    assert tool_results == ["Tool 'make' is not available in this context."] * 2
    assert (result.output, result.usage.total_tokens) == ("done", 220)
    assert result.cost_usd > 0
    assert adapter.capabilities.model == "gpt-4o"
