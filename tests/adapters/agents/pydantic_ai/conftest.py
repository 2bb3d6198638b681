"""Fixtures for the pydantic-ai adapter."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Kit:
    """Scripted models and agents; imports the framework on first use."""

    @staticmethod
    def model(
        *responses: Sequence[Any] | ModelResponse | Exception,
        seen: list[list[ModelMessage]] | None = None,
        tokens: int = 10,
    ) -> FunctionModel:
        """A model that returns these responses in turn, each whole or in parts; or it fails."""
        from pydantic_ai.messages import ModelResponse, TextPart
        from pydantic_ai.models.function import FunctionModel
        from pydantic_ai.usage import RequestUsage

        def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            if seen is not None:
                seen.append(messages)
            response = responses[sum(isinstance(message, ModelResponse) for message in messages)]
            if isinstance(response, Exception):
                raise response
            if isinstance(response, ModelResponse):
                return response
            parts = [TextPart(part) if isinstance(part, str) else part for part in response]
            return ModelResponse(parts=parts, usage=RequestUsage(input_tokens=tokens, output_tokens=1))

        return FunctionModel(respond)

    @staticmethod
    def call(call_id: str, name: str, **arguments: Any) -> ToolCallPart:
        from pydantic_ai.messages import ToolCallPart

        return ToolCallPart(name, arguments, tool_call_id=call_id)

    @staticmethod
    def worker(directory: Path, *responses: Sequence[Any] | ModelResponse | Exception, **more: Any) -> Any:
        """An agent with tools that write and remove files."""
        from pydantic_ai import Agent

        agent = Agent(Kit.model(*responses, **more))

        @agent.tool_plain
        def make(path: str) -> str:
            (directory / path).touch()
            return path

        @agent.tool_plain
        def rm(path: str) -> str:
            (directory / path).unlink()
            return path

        @agent.tool_plain
        async def wait() -> None:
            await anyio.sleep_forever()

        return agent

    @staticmethod
    def made(directory: Path) -> list[str]:
        return sorted(path.name for path in directory.iterdir())


@pytest.fixture
def kit() -> Kit:
    return Kit()
