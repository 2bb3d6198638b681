"""The shipped conformance suite of the Adapter port, on a real pydantic-ai agent with a scripted model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from proctor.policies.events.run_context import Usage
from proctor.supervisor.testing.adapter_fixture import Agent
from proctor.supervisor.testing.suites import AdapterConformance

pytest.importorskip("pydantic_ai", reason="pydantic-ai is not installed: pip install '.[pydantic-ai]'")
from pydantic_ai import Agent as Framework
from pydantic_ai import RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from proctor.adapters import PydanticAIAdapter


def playing(*responses: ModelResponse | Exception) -> Callable[..., ModelResponse]:
    """A model that gives these responses, one after another; which one, the conversation tells."""

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        response = responses[sum(isinstance(message, ModelResponse) for message in messages)]
        if isinstance(response, Exception):
            raise response
        return response

    return respond


@pytest.mark.anyio
class TestPydanticAIAdapter(AdapterConformance):
    """An agent whose tool makes files."""

    row = "pydantic-ai"
    without = frozenset({"staying"})

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.workspace = tmp_path

    def making(self, *files: str, together: bool = False) -> Agent:
        responses = [_making(*files)] if together else [_making(file) for file in files]
        return self._agent(*responses, _text("made"))

    def delegating(self, file: str) -> Agent:
        inner = self._worker(_making(file), _text("made"))
        outer = Framework(FunctionModel(playing(ModelResponse(parts=[ToolCallPart("delegate", {})]), _text("done"))))

        @outer.tool
        async def delegate(ctx: RunContext[object]) -> str:
            return str((await inner.run("sub", usage=ctx.usage)).output)

        return Agent(PydanticAIAdapter(outer, sub_agents=[inner]))

    def erring(self) -> Agent:
        return self._agent(ModelResponse(parts=[ToolCallPart("burst", {}, tool_call_id="b")]))

    def silent(self) -> Agent:
        return self._agent(ModelResponse(parts=[TextPart("hm"), ToolCallPart("wait", {}, tool_call_id="w")]))

    def using(self) -> tuple[Agent, Usage]:
        """Two responses that say what they used."""
        call = ToolCallPart("make", {"path": "a"}, tool_call_id="a")
        first = ModelResponse(parts=[call], usage=RequestUsage(input_tokens=10, cache_read_tokens=4, output_tokens=2))
        second = ModelResponse(parts=[TextPart("x")], usage=RequestUsage(input_tokens=20, output_tokens=3))
        expected = Usage(input_tokens=30, output_tokens=5, cache_read_tokens=4)
        return self._agent(first, second), expected

    def failing(self) -> Agent:
        return self._agent(RuntimeError("no more"))

    def offering(self) -> tuple[Agent, list[str]]:
        offered: list[str] = []

        def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            offered.extend(tool.name for tool in info.function_tools)
            return _text("seen")

        agent = Framework(FunctionModel(respond))

        def nothing() -> None: ...

        agent.tool_plain(name="kept")(nothing)
        agent.tool_plain(name="hidden")(nothing)
        return Agent(PydanticAIAdapter(agent)), offered

    def _agent(self, *responses: ModelResponse | Exception) -> Agent:
        return Agent(PydanticAIAdapter(self._worker(*responses)))

    def _worker(self, *responses: ModelResponse | Exception) -> Framework:
        agent = Framework(FunctionModel(playing(*responses)))

        @agent.tool_plain
        def make(path: str) -> str:
            (self.workspace / path).touch()
            return "made"

        @agent.tool_plain
        async def wait() -> str:
            await anyio.sleep_forever()
            raise AssertionError

        @agent.tool_plain
        async def burst() -> str:
            raise RuntimeError("burst")

        return agent


def _making(*files: str) -> ModelResponse:
    return ModelResponse(parts=[ToolCallPart("make", {"path": file}, tool_call_id=file) for file in files])


def _text(text: str) -> ModelResponse:
    return ModelResponse(parts=[TextPart(text)])
