"""A scripted Responses API on loopback, for the real SDK and its real client."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import loopback
import pytest

if TYPE_CHECKING:
    from agents import Agent, OpenAIResponsesModel, Tool


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class ScriptedAPI:
    """Answers each request with the first response of its script that the conversation does not have yet.

    Set `script` to lists of output items (`text` and `calls` make those) or HTTP statuses, and `scripts`
    for agents with instructions of their own. `bodies` has what was asked.
    """

    def __init__(self) -> None:
        self.script: list[list[dict[str, Any]] | int] = []
        self.scripts: dict[str, list[list[dict[str, Any]] | int]] = {}
        self.bodies: list[dict[str, Any]] = []
        self.url = ""

    def text(self, words: str) -> list[dict[str, Any]]:
        content = [{"type": "output_text", "text": words, "annotations": []}]
        return [{"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": content}]

    def calls(self, *wanted: tuple[str, str, dict[str, Any]]) -> list[dict[str, Any]]:
        """A response that asks for calls: id, name and arguments of each."""
        return [
            {"type": "function_call", "id": f"fc_{n}", "call_id": n, "name": name, "arguments": json.dumps(arguments)}
            for n, name, arguments in wanted
        ]

    def answer(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.bodies.append(body)
        script = self.scripts.get(body.get("instructions") or "", self.script)
        conversation = json.dumps(body["input"])
        given = next(response for response in script if isinstance(response, int) or not _in(response, conversation))
        if isinstance(given, int):
            return given, {"error": {"message": "scripted failure", "type": "server_error"}}
        used = {"input_tokens": 100, "output_tokens": 10}
        details = {"input_tokens_details": {"cached_tokens": 4}, "output_tokens_details": {"reasoning_tokens": 3}}
        return 200, {
            "id": f"resp_{len(self.bodies)}",
            "object": "response",
            "created_at": 1,
            "model": body["model"],
            "status": "completed",
            "output": given,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {**used, **details, "total_tokens": 110},
        }


def _in(response: list[dict[str, Any]], conversation: str) -> bool:
    contents = [item["call_id"] if "call_id" in item else item["content"][0]["text"] for item in response]
    return all(json.dumps(text) in conversation for text in contents)


@pytest.fixture
def api() -> Iterator[ScriptedAPI]:
    scripted = ScriptedAPI()

    def serve(request: loopback.Exchange) -> None:
        status, answer = scripted.answer(request.body)
        if request.body.get("stream") and status == 200:
            request.stream(_sse(answer))
        else:
            request.give(answer, status=status)

    server = loopback.Server(serve)
    scripted.url = f"{server.url}/v1"
    yield scripted
    server.close()


def _sse(answer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    events: list[dict[str, Any]] = [{"type": "response.created", "response": {**answer, "output": []}}]
    for n, item in enumerate(answer["output"]):
        events.append({"type": "response.output_item.added", "output_index": n, "item": item})
        if item["type"] == "message":
            delta = {"item_id": item["id"], "output_index": n, "content_index": 0, "logprobs": []}
            text = item["content"][0]["text"]
            events.append({"type": "response.output_text.delta", "delta": text, **delta})
        events.append({"type": "response.output_item.done", "output_index": n, "item": item})
    events.append({"type": "response.completed", "response": answer})
    yield from ({**event, "sequence_number": n} for n, event in enumerate(events))


@pytest.fixture
def worker(tmp_path: Path, api: ScriptedAPI) -> Callable[..., Any]:
    """Make an agent with tools that make and remove files."""
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
