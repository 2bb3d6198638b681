"""The shipped conformance suite for adapters, on a real agent of the OpenAI Agents SDK."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.policies.events.run_context import Usage
from proctor.supervisor.testing.adapter_fixture import Agent
from proctor.supervisor.testing.suites import AdapterConformance

agents = pytest.importorskip(
    "agents", reason="the OpenAI Agents SDK is not installed: pip install '.[openai-agents]'"
)
from proctor.adapters import OpenAIAgentsAdapter  # noqa: E402

from .conftest import responses  # noqa: E402


class _Offered(list[str]):
    """The names of the tools in the API's requests, read on demand."""

    def __init__(self, api: Any) -> None:
        self._api = api

    def __contains__(self, name: object) -> bool:
        return any(tool["name"] == name for body in self._api.bodies for tool in body["tools"])


@pytest.mark.anyio
class TestOpenAIAgentsAdapter(AdapterConformance):
    """An agent whose tool writes files, with a loopback API."""

    row: str | None = "openai-agents"

    stream = False
    without = frozenset({"staying"})

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path, api: Any) -> None:
        self.workspace = tmp_path
        self.api = api

    def making(self, *files: str, together: bool = False) -> Agent:
        calls = [(file, "make", {"path": file}) for file in files]
        self.api.script = [self.api.calls(*calls)] if together else [self.api.calls(one) for one in calls]
        self.api.script.append(self.api.text("all of it"))
        return self._agent()

    def delegating(self, file: str) -> Agent:
        self.api.script = [self.api.calls(("ask", "ask_maker", {"input": "make it"})), self.api.text("done")]
        self.api.scripts["make"] = [self.api.calls((file, "make", {"path": file})), self.api.text("all of it")]
        tool = self._maker(instructions="make").as_tool("ask_maker", "makes files")
        return self._adapted(self._maker(tools=[tool]))

    def erring(self) -> Agent:
        self.api.script = [self.api.calls(("b", "burst", {})), self.api.text("so be it")]
        return self._agent()

    def silent(self) -> Agent:
        self.api.script = [self.api.calls(("w", "wait", {}))]
        return self._agent()

    def using(self) -> tuple[Agent, Usage]:
        """Two responses that report their usage."""
        agent = self.making("a")
        return agent, Usage(input_tokens=200, output_tokens=20, cache_read_tokens=8, reasoning_tokens=6)

    def failing(self) -> Agent:
        self.api.script = [500]
        return self._agent()

    def offering(self) -> tuple[Agent, list[str]]:
        self.api.script = [self.api.text("seen")]
        tools = [agents.function_tool(lambda: "", name_override=name) for name in ("kept", "hidden")]
        return self._adapted(self._maker(tools=tools)), _Offered(self.api)

    def _agent(self) -> Agent:
        return self._adapted(self._maker())

    def _adapted(self, agent: Any) -> Agent:
        return Agent(OpenAIAgentsAdapter(agent, stream=self.stream))

    def _maker(self, **more: Any) -> Any:
        @agents.function_tool  # type: ignore[untyped-decorator]
        async def make(path: str) -> str:
            (self.workspace / path).touch()
            return "made"

        @agents.function_tool  # type: ignore[untyped-decorator]
        async def wait() -> str:
            await anyio.sleep_forever()
            raise AssertionError

        @agents.function_tool  # type: ignore[untyped-decorator]
        async def burst() -> str:
            raise RuntimeError("burst")

        return agents.Agent(**{"name": "maker", "tools": [make, wait, burst], "model": responses(self.api), **more})


@pytest.mark.anyio
class TestStreamingOpenAIAgentsAdapter(TestOpenAIAgentsAdapter):
    """The same, with streamed text."""

    row = None

    stream = True
