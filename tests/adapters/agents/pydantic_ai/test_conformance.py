"""The shipped conformance suite for adapters, on a real pydantic-ai agent with a scripted model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proctor.policies.events.run_context import Usage
from proctor.supervisor.testing.adapter_fixture import Agent
from proctor.supervisor.testing.suites import AdapterConformance

pytest.importorskip("pydantic_ai", reason="pydantic-ai is not installed: pip install '.[pydantic-ai]'")
from pydantic_ai import Agent as Framework
from pydantic_ai import RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from proctor.adapters import PydanticAIAdapter

from .conftest import Kit


@pytest.mark.anyio
class TestPydanticAIAdapter(AdapterConformance):
    """An agent whose tool writes files."""

    row = "pydantic-ai"
    without = frozenset({"staying"})

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.workspace = tmp_path

    def making(self, *files: str, together: bool = False) -> Agent:
        calls = [Kit.call(file, "make", path=file) for file in files]
        return self._agent(*([calls] if together else [[call] for call in calls]), ["made"])

    def delegating(self, file: str) -> Agent:
        inner = Kit.worker(self.workspace, [Kit.call(file, "make", path=file)], ["made"])
        outer = Framework(Kit.model([Kit.call("d", "delegate")], ["done"]))

        @outer.tool
        async def delegate(ctx: RunContext[object]) -> str:
            return str((await inner.run("sub", usage=ctx.usage)).output)

        return Agent(PydanticAIAdapter(outer, sub_agents=[inner]))

    def erring(self) -> Agent:
        agent = Framework(Kit.model([Kit.call("b", "burst")]))

        @agent.tool_plain
        async def burst() -> str:
            raise RuntimeError("burst")

        return Agent(PydanticAIAdapter(agent))

    def silent(self) -> Agent:
        return self._agent(["hm", Kit.call("w", "wait")])

    def using(self) -> tuple[Agent, Usage]:
        """Two responses that report their usage."""
        spent = RequestUsage(input_tokens=10, cache_read_tokens=4, output_tokens=2)
        first = ModelResponse(parts=[Kit.call("a", "make", path="a")], usage=spent)
        second = ModelResponse(parts=[TextPart("x")], usage=RequestUsage(input_tokens=20, output_tokens=3))
        return self._agent(first, second), Usage(input_tokens=30, output_tokens=5, cache_read_tokens=4)

    def failing(self) -> Agent:
        return self._agent(RuntimeError("no more"))

    def offering(self) -> tuple[Agent, list[str]]:
        offered: list[str] = []

        def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            offered.extend(tool.name for tool in info.function_tools)
            return ModelResponse(parts=[TextPart("seen")])

        agent = Framework(FunctionModel(respond))

        def nothing() -> None: ...

        agent.tool_plain(name="kept")(nothing)
        agent.tool_plain(name="hidden")(nothing)
        return Agent(PydanticAIAdapter(agent)), offered

    def _agent(self, *responses: Any) -> Agent:
        return Agent(PydanticAIAdapter(Kit.worker(self.workspace, *responses)))
