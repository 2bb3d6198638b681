"""A scripted Responses API on loopback, for the real SDK and its client."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from codex_bench import Reply, ResponsesAPI

if TYPE_CHECKING:
    from agents import Agent, OpenAIResponsesModel, Tool


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class ScriptedAPI:
    """Answers each request with the first response of its script that the conversation does not contain yet.

    Set `script` to lists of output items (`text` and `calls` create those) or HTTP statuses, and `scripts` for agents
    with their own instructions. `bodies` has the requests.
    """

    def __init__(self) -> None:
        self.script: list[list[dict[str, Any]] | int] = []
        self.scripts: dict[str, list[list[dict[str, Any]] | int]] = {}
        self.bodies: list[dict[str, Any]] = []
        self._served = ResponsesAPI()
        self._served.next_reply = self._next_reply
        self.url = self._served.url
        self.close = self._served.close

    def text(self, words: str) -> list[dict[str, Any]]:
        return [self._served.text(words)]

    def calls(self, *wanted: tuple[str, str, dict[str, Any]]) -> list[dict[str, Any]]:
        """A response with tool calls: id, name and arguments of each."""
        return [self._served.call(n, name, **arguments) for n, name, arguments in wanted]

    def _next_reply(self, body: dict[str, Any]) -> Reply:
        self.bodies.append(body)
        script = self.scripts.get(body.get("instructions") or "", self.script)
        conversation = json.dumps(body["input"])
        given = next(response for response in script if isinstance(response, int) or not _in(response, conversation))
        return Reply(status=given) if isinstance(given, int) else Reply(*given, used=(100, 10), cached=4, reasoning=3)


def _in(response: list[dict[str, Any]], conversation: str) -> bool:
    contents = [item["call_id"] if "call_id" in item else item["content"][0]["text"] for item in response]
    return all(json.dumps(text) in conversation for text in contents)


@pytest.fixture
def api() -> Iterator[ScriptedAPI]:
    scripted = ScriptedAPI()
    yield scripted
    scripted.close()


@pytest.fixture
def worker(tmp_path: Path, api: ScriptedAPI) -> Callable[..., Any]:
    """Create an agent with tools that write and remove files."""
    from agents import Agent, function_tool

    @function_tool
    async def make(path: str) -> str:
        (tmp_path / path).touch()
        return path

    @function_tool
    async def rm(path: str) -> str:
        (tmp_path / path).unlink()
        return path

    def agent(name: str = "worker", tools: list[Tool] | None = None, **more: Any) -> Agent[Any]:
        return Agent(name=name, tools=[make, rm] if tools is None else tools, model=responses(api), **more)

    return agent


def responses(api: ScriptedAPI) -> OpenAIResponsesModel:
    import openai
    from agents import OpenAIResponsesModel

    client = openai.AsyncOpenAI(base_url=api.url, api_key="none", max_retries=0)
    return OpenAIResponsesModel(model="gpt-5.5", openai_client=client)
